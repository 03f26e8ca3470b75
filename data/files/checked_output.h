#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// The byte range that one write_at() wrote.
struct WrittenBytes {
  int64_t offset = 0, bytes = 0;
  uint64_t hash = 0;  ///< XXH3-64 of the caller's bytes
};

/// A file that is written at byte offsets and read back from the device. Several threads may call write_at()
/// and read_back() at once. All members throw Error(kStorage).
class CheckedOutput {
 public:
  CheckedOutput(Io& io, const std::filesystem::path& path, OutputFile::Mode mode = OutputFile::Mode::kCreate);

  /// Hashes and writes `bytes` bytes at byte `offset`. Starts their transfer to the device and does not wait
  /// for it.
  WrittenBytes write_at(int64_t offset, const void* data, int64_t bytes);

  /// Waits until the bytes `written` are on the device, drops them from the page cache, reads them into
  /// `buffer` and compares their hash. If the file system cannot wait or drop, the page cache may answer
  /// instead of the device. Call it some time after the write, to wait less.
  void read_back(const WrittenBytes& written, std::vector<char>& buffer) const;

  /// Waits until the bytes survive a power loss, and closes the file. Must be the last call.
  void sync_and_close();

 private:
  OutputFile output_;
  InputFile input_;
};

/// Reads the bytes `written` of `file` to the start of `buffer`, which grows if too small. Throws as
/// InputFile::read_at(), and Error(kStorage) if their hash is not written.hash.
void require_hash(const InputFile& file, const WrittenBytes& written, std::vector<char>& buffer);

}  // namespace ripstop
