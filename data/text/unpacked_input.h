#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ripstop {

/// A file, pipe or standard input as a stream of bytes, unpacked if it is gzip, in bounded memory. Unpacks
/// all gzip members with the checks of `gzip -t`: CRC-32 and length, whole headers, and only zero bytes after
/// the last member. Reads a file only up to its length at opening, if that is not 0.
///
/// Throws Error(kInputData), with the name of the file, if it cannot be opened, is a directory or damaged
/// gzip, is named .gz or .tgz and is not gzip, or has unpacked to more than 16 MiB and more than a thousand
/// times the bytes read; Error(kStorage) if the storage fails.
class UnpackedInput {
 public:
  /// "-" is standard input. Waits until a pipe has a writer, but not for its bytes.
  explicit UnpackedInput(const std::filesystem::path& path);
  ~UnpackedInput();
  UnpackedInput(const UnpackedInput&) = delete;
  UnpackedInput& operator=(const UnpackedInput&) = delete;

  /// The next bytes, valid until the next call; empty at the end. Waits if a pipe has no bytes.
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
