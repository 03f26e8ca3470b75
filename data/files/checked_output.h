// CheckedOutput: a file whose bytes are read back from the device and compared while others are written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// Bytes of a file that one call wrote.
struct WrittenBytes {
  int64_t offset = 0, bytes = 0;
  uint64_t hash = 0;  ///< XXH3-64 of what the call was given
};

/// A file of ripstop's that is written at offsets. Several threads may call `write_at` and `read_back` at
/// once. All members throw Error(kStorage).
class CheckedOutput {
 public:
  /// Opens the file like OutputFile.
  CheckedOutput(Io& io, const std::filesystem::path& path, OutputFile::Mode mode = OutputFile::Mode::kCreate);

  /// Hashes and writes exactly `bytes` bytes at byte `offset`, and has the device begin to write them.
  WrittenBytes write_at(int64_t offset, const void* data, int64_t bytes);

  /// Waits until what write_at wrote has gone to the device, drops it from the page cache, reads it through
  /// `buffer` and compares the hash. Proves that the device, or the server, returns these bytes; if the file
  /// system cannot wait or drop, that the page cache does. To wait little, call it for earlier writes than
  /// the latest.
  void read_back(const WrittenBytes& written, std::vector<char>& buffer) const;

  /// Waits until the bytes survive a power loss, and closes the file. The last call.
  void sync_and_close();

 private:
  OutputFile output_;
  InputFile input_;
};

/// Reads the bytes that were written to the begin of `buffer`, which grows if it is too small. Throws
/// Error(kStorage) if they are others.
void require_hash(const InputFile& file, const WrittenBytes& written, std::vector<char>& buffer);

}  // namespace ripstop
