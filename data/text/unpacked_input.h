// UnpackedInput: the bytes of a file, unpacked if it is gzip. Wraps zlib.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ripstop {

/// A file, a pipe or standard input as a stream of bytes, in bounded memory. Unpacks all members of gzip with
/// the checks of `gzip -t`: CRC-32 and length of every member, whole headers, and only zero bytes behind the
/// last member. Reads a file up to the length that it had when it was opened.
///
/// All functions throw Error(kInputData) with the name of the file if it is missing, a directory, damaged or
/// cut short, if its name ends in .gz or .tgz and it is not gzip, or if it unpacks to more than a thousand
/// times its size; and Error(kStorage) if the storage fails.
class UnpackedInput {
 public:
  /// Opens a file or a pipe; "-" is standard input. Waits for the writer of a pipe, but not for its bytes.
  explicit UnpackedInput(const std::filesystem::path& path);
  ~UnpackedInput();
  UnpackedInput(const UnpackedInput&) = delete;
  UnpackedInput& operator=(const UnpackedInput&) = delete;

  /// The next bytes, valid until the next call; empty at the end. Returns the bytes of a pipe that have
  /// arrived; waits if there are none.
  std::string_view next_block();
  /// Bytes of the file read so far, before unpacking.
  int64_t bytes_read() const;
  /// The path, or "standard input".
  const std::string& name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
