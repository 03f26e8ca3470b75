#include "train/checkpoint/file_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

static_assert(std::endian::native == std::endian::little, "the sidecar is a copy of the memory");

/// The first bytes of a sidecar (docs/formats.md).
struct Header {
  char magic[8];
  uint32_t version = 1;
  uint32_t block_bytes = FileBlocks::kBlockBytes;
  int64_t file_bytes = 0;
  int64_t array_count = 0;
};
static_assert(sizeof(Header) == 32 && sizeof(FileBlocks::Array) == 16);
constexpr char kMagic[] = "RIPBLOCK";

/// An array takes 16 bytes, and a hash takes 8.
int64_t size_of_sidecar(int64_t file_bytes, int64_t arrays) {
  return static_cast<int64_t>(sizeof(Header)) + arrays * 16 + FileBlocks::block_count(file_bytes) * 8;
}

/// `bytes` must have the size_of_sidecar() of `file_bytes` and `array_count`; else the copies read beyond it.
FileBlocks decode(const std::string& bytes, int64_t file_bytes, int64_t array_count,
                  const std::string& name) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof header.magic) != 0 || header.version != 1 ||
      header.block_bytes != FileBlocks::kBlockBytes || header.array_count != array_count)
    fail(ExitCode::kStorage, "{}: is not a table of blocks that this version of ripstop reads", name);
  if (header.file_bytes != file_bytes)
    fail(ExitCode::kStorage, "{}: belongs to a file of {} bytes, the manifest says {}", name,
         header.file_bytes, file_bytes);
  FileBlocks blocks;
  blocks.bytes = file_bytes;
  blocks.arrays.resize(static_cast<size_t>(array_count));
  blocks.hashes.resize(static_cast<size_t>(blocks.block_count()));
  const char* from = bytes.data() + sizeof header;
  std::memcpy(blocks.arrays.data(), from, blocks.arrays.size() * 16);
  std::memcpy(blocks.hashes.data(), from + blocks.arrays.size() * 16, blocks.hashes.size() * 8);
  return blocks;
}

}  // namespace

std::string sidecar_bytes(const FileBlocks& blocks) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.file_bytes = blocks.bytes;
  header.array_count = static_cast<int64_t>(blocks.arrays.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(blocks.arrays.data()), blocks.arrays.size() * 16);
  bytes.append(reinterpret_cast<const char*>(blocks.hashes.data()), blocks.hashes.size() * 8);
  return bytes;
}

FileBlocks read_sidecar(Io& io, const std::filesystem::path& directory, const StoredFile& file,
                        const std::vector<StoredArray>& arrays) {
  const std::filesystem::path path = directory / sidecar_file_name(file.rank);
  const int64_t expected = size_of_sidecar(file.bytes, std::ssize(arrays));
  // A limit, because a wrong file may have any size.
  const std::string bytes = read_whole_file(io, path, std::max(expected, file.sidecar_bytes));
  if (static_cast<int64_t>(bytes.size()) != file.sidecar_bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, the manifest says {}", path.string(), bytes.size(),
         file.sidecar_bytes);
  StreamHash hash;
  hash.update(bytes);
  if (hash.hex() != file.sidecar_hash)
    fail(ExitCode::kStorage,
         "{}: its hash is {}, the manifest says {}: it is damaged or belongs to another checkpoint",
         path.string(), hash.hex(), file.sidecar_hash);
  if (file.sidecar_bytes != expected)
    fail(ExitCode::kStorage, "{}: has {} bytes, but {} arrays in a file of {} bytes need {}", path.string(),
         file.sidecar_bytes, arrays.size(), file.bytes, expected);
  // The hash is right, so the file is not damaged. The checks below are against forged files.
  FileBlocks blocks = decode(bytes, file.bytes, std::ssize(arrays), path.string());
  for (size_t i = 0; i < arrays.size(); ++i) {
    const FileBlocks::Array& a = blocks.arrays[i];
    // Divides, because a product with a forged number of elements could overflow.
    if (a.elements != arrays[i].elements || a.offset_bytes < 0 || a.offset_bytes > blocks.bytes ||
        a.elements > (blocks.bytes - a.offset_bytes) / element_bytes(arrays[i].dtype))
      fail(ExitCode::kStorage,
           "{}: array {} has {} elements at byte {}, {} elements within {} bytes were expected",
           path.string(), i, a.elements, a.offset_bytes, arrays[i].elements, blocks.bytes);
  }
  return blocks;
}

BlockReader::BlockReader(Io& io, const std::filesystem::path& path, const FileBlocks& blocks)
    : file_(io, path), blocks_(&blocks) {}

void BlockReader::read_block(int64_t block, char* to) const {
  const int64_t begin = block * FileBlocks::kBlockBytes, count = blocks_->block_bytes(block);
  file_.read_at(begin, to, count);
  if (hash64(to, count) != blocks_->hashes[static_cast<size_t>(block)])
    fail(ExitCode::kStorage, "{}: the hash of bytes {} to {} is wrong: the file is damaged",
         file_.path().string(), begin, begin + count);
}

void BlockReader::load_block(int64_t block) {
  if (block == loaded_) return;  // frequent: pieces are short and in order
  loaded_ = -1;                  // if the read below fails, no block is loaded
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<char[]>(FileBlocks::kBlockBytes);
  read_block(block, buffer_.get());
  loaded_ = block;
}

void BlockReader::read(void* bytes, int64_t count, int64_t offset) {
  RIPSTOP_CHECK(offset >= 0 && count >= 0 && offset <= blocks_->bytes - count, "{} + {} of {}", offset, count,
                blocks_->bytes);
  char* to = static_cast<char*>(bytes);
  while (count > 0) {
    const int64_t block = offset / FileBlocks::kBlockBytes, at = offset % FileBlocks::kBlockBytes;
    const int64_t part = std::min(count, blocks_->block_bytes(block) - at);
    if (part == blocks_->block_bytes(block)) {
      read_block(block, to);
    } else {
      load_block(block);
      std::memcpy(to, buffer_.get() + at, static_cast<size_t>(part));
    }
    to += part, count -= part, offset += part;
  }
}

}  // namespace ripstop
