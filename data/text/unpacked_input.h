// UnpackedInput: reads a file and unpacks it if it is gzip, with zlib.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ripstop {

/// A file, a pipe or standard input as a stream of bytes, in bounded memory. Unpacks all members of a gzip
/// file with the checks of `gzip -t`: CRC-32 and length of every member, whole headers, and only zero bytes
/// behind the last member. Reads a file only up to the length that it had when it was opened.
///
/// All functions throw Error(kInputData) with the name of the file if the file is missing, a directory,
/// damaged or cut short.
/// They throw Error(kInputData) if the name ends in .gz or .tgz and the file is not gzip.
/// They throw Error(kInputData) if the file unpacks to more than 16 MiB and a thousand times its size.
/// They throw Error(kStorage) if the storage fails.
class UnpackedInput {
 public:
  /// Opens a file or a pipe; "-" stands for standard input. Waits until a pipe has a writer, but not for its
  /// bytes.
  explicit UnpackedInput(const std::filesystem::path& path);
  ~UnpackedInput();
  UnpackedInput(const UnpackedInput&) = delete;
  UnpackedInput& operator=(const UnpackedInput&) = delete;

  /// Returns the next bytes, valid until the next call; empty at the end. For a pipe, returns the bytes that
  /// have arrived, and waits only if there are none.
  std::string_view next_block();
  /// Number of bytes of the file read so far, before unpacking.
  int64_t bytes_read() const;
  /// The path of the file, or "standard input".
  const std::string& name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
