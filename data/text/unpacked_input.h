// UnpackedInput: the bytes of a file, unpacked if it is gzip. The only place that knows zlib.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ripstop {

/// A file, a pipe or standard input as a stream of bytes in bounded memory. Gzip is unpacked: all members,
/// one after another. What `gzip -t` refuses is refused: CRC-32 and length of every member are compared, a
/// header must be whole, and nothing but zero bytes may follow the last member. A file is read to the length
/// that it had when it was opened.
///
/// All functions throw Error(kInputData) with the name of the file if it is missing, a directory, damaged or
/// cut short, if its name ends in .gz or .tgz and it is no gzip, or if it grows more than a thousandfold; and
/// Error(kStorage) if the storage fails.
class UnpackedInput {
 public:
  /// Opens a file or a pipe; "-" is standard input. Waits for the writer of a pipe, but not for its bytes.
  explicit UnpackedInput(const std::filesystem::path& path);
  ~UnpackedInput();
  UnpackedInput(const UnpackedInput&) = delete;
  UnpackedInput& operator=(const UnpackedInput&) = delete;

  /// The next bytes, valid until the next call; empty at the end. Takes what has arrived from a pipe, and
  /// waits only if that is nothing.
  std::string_view next_block();
  /// Bytes of the file read so far, counted as they lie on disk.
  int64_t bytes_read() const;
  /// The path, or "standard input".
  const std::string& name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
