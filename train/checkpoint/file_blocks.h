// FileBlocks: the sidecar of a rank's file. With it, parts of the file are read and verified without libhdf5.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/files/file.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {

/// The contents of rank_*.blocks, which describes rank_*.h5 (docs/formats.md).
struct FileBlocks {
  static constexpr int64_t kBlockBytes = int64_t{1} << 20;

  struct Array {
    int64_t offset_bytes = 0;
    int64_t elements = 0;
    bool operator==(const Array&) const = default;
  };

  int64_t bytes = 0;             ///< size of rank_*.h5
  std::vector<Array> arrays;     ///< three for each shard, in the order of stored_shards
  std::vector<uint64_t> hashes;  ///< XXH3-64 of each block

  static int64_t block_count(int64_t file_bytes) { return (file_bytes + kBlockBytes - 1) / kBlockBytes; }
  int64_t block_count() const { return block_count(bytes); }
  int64_t block_bytes(int64_t block) const { return std::min(kBlockBytes, bytes - block * kBlockBytes); }
  bool operator==(const FileBlocks&) const = default;
};

/// The contents of the sidecar file.
std::string sidecar_bytes(const FileBlocks& blocks);

/// Reads the sidecar of `file` in `directory`. Throws Error(kStorage) if it cannot be read, has another
/// version, or differs from `file` in hash or sizes, or from `arrays`.
FileBlocks read_sidecar(Io& io, const std::filesystem::path& directory, const StoredFile& file,
                        const std::vector<StoredArray>& arrays);

/// Reads parts of a rank's file and compares each block with its hash. Keeps the last block read in part.
class BlockReader {
 public:
  /// `blocks` is borrowed. Throws Error(kStorage) if the file cannot be opened.
  BlockReader(Io& io, const std::filesystem::path& path, const FileBlocks& blocks);
  /// Reads bytes [offset, offset + count). Throws Error(kStorage) if a read fails or a hash is wrong.
  void read(void* bytes, int64_t count, int64_t offset);
  /// Reads and verifies `block`. Throws the errors of read().
  void load_block(int64_t block);

 private:
  void read_block(int64_t block, char* to) const;

  InputFile file_;
  const FileBlocks* blocks_;
  std::unique_ptr<char[]> buffer_;  ///< memory for one block; null before the first load_block()
  int64_t loaded_ = -1;             ///< the block in buffer_; -1: no block
};

}  // namespace ripstop
