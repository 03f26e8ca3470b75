// CheckedOutput: writes a file, and reads earlier bytes back from the device while it writes later ones.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// The bytes of a file that one call of `write_at` wrote.
struct WrittenBytes {
  int64_t offset = 0, bytes = 0;
  uint64_t hash = 0;  ///< XXH3-64 of the bytes that the caller passed
};

/// A file that is written at byte offsets. Several threads may call `write_at` and `read_back` at once. All
/// members throw Error(kStorage).
class CheckedOutput {
 public:
  /// Opens the file like OutputFile.
  CheckedOutput(Io& io, const std::filesystem::path& path, OutputFile::Mode mode = OutputFile::Mode::kCreate);

  /// Hashes and writes exactly `bytes` bytes at byte `offset`. Starts to write them to the device, and does
  /// not wait for it.
  WrittenBytes write_at(int64_t offset, const void* data, int64_t bytes);

  /// Waits until `written` has gone to the device, drops it from the page cache, reads it into `buffer` and
  /// compares the hash. On a file system that cannot wait or drop, the page cache may answer instead of the
  /// device. The latest write takes longest to wait for, so call this for earlier ones.
  void read_back(const WrittenBytes& written, std::vector<char>& buffer) const;

  /// Waits until the bytes survive a power loss, and closes the file. The last call.
  void sync_and_close();

 private:
  OutputFile output_;
  InputFile input_;
};

/// Reads the bytes `written` of `file` into the begin of `buffer`, which grows if it is too small. Throws
/// Error(kStorage) if their hash differs.
void require_hash(const InputFile& file, const WrittenBytes& written, std::vector<char>& buffer);

}  // namespace ripstop
