// FileBlocks: the sidecar of a rank's file, with the hash of each of its blocks and the place of each array.
// Partial reads stay verifiable, and reading needs no libhdf5.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/io.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {

/// What rank_*.blocks says of rank_*.h5. As a file, all little-endian: "RIPBLOCK", uint32 version 1, uint32
/// bytes of a block, int64 bytes of the file, int64 arrays, for each array int64 offset and int64 elements,
/// and for each block its uint64 XXH3-64 (the last block may be shorter).
struct FileBlocks {
  static constexpr int64_t kBlockBytes = int64_t{1} << 20;

  struct Array {
    int64_t offset_bytes = 0;
    int64_t elements = 0;  ///< float32
    bool operator==(const Array&) const = default;
  };

  int64_t bytes = 0;          ///< of the file
  std::vector<Array> arrays;  ///< in the order of stored_ranges, three a range
  std::vector<uint64_t> hashes;

  static int64_t block_count(int64_t file_bytes) { return (file_bytes + kBlockBytes - 1) / kBlockBytes; }
  int64_t block_count() const { return block_count(bytes); }
  int64_t block_bytes(int64_t block) const { return std::min(kBlockBytes, bytes - block * kBlockBytes); }
  bool operator==(const FileBlocks&) const = default;
};

/// The bytes of the sidecar.
std::string sidecar_bytes(const FileBlocks& blocks);

/// Reads the sidecar of `file` below `directory` and proves it by the manifest's hash, size and `arrays`
/// (elements of each array that must be there). Throws Error(kStorage).
FileBlocks read_sidecar(Io& io, const std::filesystem::path& directory, const StoredFile& file,
                        const std::vector<int64_t>& elements);

/// Reads parts of a rank's file, through whole blocks that are compared with their hashes; the last one is
/// kept.
class BlockReader {
 public:
  /// `blocks` must outlive it. Throws Error(kStorage) where the file cannot be opened.
  BlockReader(Io& io, const std::filesystem::path& path, const FileBlocks& blocks);
  /// Bytes [offset, offset + count) of the file. Throws Error(kStorage) naming file and byte where a block is
  /// not what was written.
  void read(void* bytes, int64_t count, int64_t offset);
  /// Reads `block` and proves it.
  void load_block(int64_t block);
  void forget() { file_.forget(); }

 private:
  File file_;
  const FileBlocks* blocks_;
  std::vector<char> buffer_;
  int64_t loaded_ = -1;
};

}  // namespace ripstop
