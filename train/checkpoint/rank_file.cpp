#include "train/checkpoint/rank_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string_view>

#include "data/hash.h"
#include "data/hdf5.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// Indices of the arrays by their offset. libhdf5 does not place them in the order of their creation.
std::vector<size_t> by_offset(const std::vector<FileBlocks::Array>& arrays) {
  std::vector<size_t> order(arrays.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return arrays[a].offset_bytes < arrays[b].offset_bytes; });
  return order;
}

/// Hands out the bytes of a rank's file from the first to the last.
class FileBytes {
 public:
  /// Both must outlive it.
  FileBytes(const RankFileSkeleton& skeleton, std::span<const ArraySource> sources) {
    RIPSTOP_CHECK(sources.size() == skeleton.arrays.size(), "{} sources for {} arrays", sources.size(),
                  skeleton.arrays.size());
    for (const size_t i : by_offset(skeleton.arrays)) {
      // A file is gap, array, gap, array, ..., gap: libhdf5 made the gaps, the sources give the arrays.
      parts_.push_back({.gap = skeleton.gaps[parts_.size() / 2]});
      const int64_t size = element_bytes(skeleton.dtypes[i]);
      parts_.push_back(
          {.array = &sources[i], .element_bytes = size, .bytes = skeleton.arrays[i].elements * size});
      // Blocks end at multiples of their size, so none of them cuts an element.
      RIPSTOP_CHECK(skeleton.arrays[i].offset_bytes % size == 0, "an array begins at byte {}",
                    skeleton.arrays[i].offset_bytes);
    }
    parts_.push_back({.gap = skeleton.gaps.back()});
    for (Part& part : parts_)
      if (part.array == nullptr) part.bytes = std::ssize(part.gap);
  }

  /// Copies the next `count` bytes.
  void copy(char* to, int64_t count) {
    while (count > 0) {
      const Part& part = parts_[next_];
      const int64_t size = std::min(count, part.bytes - done_);
      if (size > 0 && part.array != nullptr)
        (*part.array)(done_ / part.element_bytes, size / part.element_bytes, to);
      else if (size > 0)
        std::memcpy(to, part.gap.data() + done_, static_cast<size_t>(size));
      to += size, count -= size, done_ += size;
      if (done_ < part.bytes) continue;
      ++next_;
      done_ = 0;
    }
  }

 private:
  struct Part {
    std::string_view gap = {};
    const ArraySource* array = nullptr;  ///< null for a gap
    int64_t element_bytes = 1;
    int64_t bytes = 0;
  };
  std::vector<Part> parts_;
  size_t next_ = 0;
  int64_t done_ = 0;  ///< bytes of parts_[next_]
};

bool is_zero(const char* bytes, int64_t count) {
  return *bytes == 0 && std::memcmp(bytes, bytes + 1, static_cast<size_t>(count - 1)) == 0;
}

/// Reads the bytes before, between and after the arrays.
std::vector<std::string> read_gaps(const InputFile& file, const RankFileSkeleton& skeleton) {
  const std::vector<FileBlocks::Array>& arrays = skeleton.arrays;
  std::vector<std::string> gaps;
  int64_t at = 0;
  const auto read_until = [&](int64_t end) {
    RIPSTOP_CHECK(end >= at, "{}: two arrays share byte {}", file.path().string(), end);
    gaps.emplace_back(static_cast<size_t>(end - at), '\0');
    file.read_at(at, gaps.back().data(), end - at);
  };
  for (const size_t i : by_offset(arrays)) {
    read_until(arrays[i].offset_bytes);
    at = arrays[i].offset_bytes + arrays[i].elements * element_bytes(skeleton.dtypes[i]);
  }
  read_until(file.bytes());
  return gaps;
}

}  // namespace

RankFileSkeleton make_skeleton(Io& io, const std::filesystem::path& scratch,
                               const std::vector<UnitSpec>& units, const MeshCoordinates& coordinates,
                               const std::vector<UnitShard>& shards, DType moments) {
  std::vector<Hdf5ArraySpec> specs;
  RankFileSkeleton skeleton;
  for (const StoredArray& array : stored_arrays(shards, moments)) {
    const UnitShard& shard = shards[specs.size() / kUnitStateCount];
    const auto state = static_cast<UnitState>(specs.size() % kUnitStateCount);
    specs.push_back({fmt::format("{}/{}", units[static_cast<size_t>(shard.unit)].name, to_string(state)),
                     array.dtype == DType::kBFloat16 ? Hdf5Type::kBFloat16 : Hdf5Type::kFloat32,
                     array.elements});
    skeleton.dtypes.push_back(array.dtype);
  }
  const Hdf5Attributes attributes = {{"format", std::string(Manifest::kFormat)},
                                     {"version", int64_t{Manifest::kVersion}},
                                     {"replicate_index", coordinates.replicate},
                                     {"fsdp_index", coordinates.fsdp},
                                     {"tensor_index", coordinates.tensor}};
  // libhdf5 writes an empty file once. Its metadata depends on shapes alone, so every save reuses it.
  for (const Hdf5Array& array : create_hdf5(scratch, specs, attributes))
    skeleton.arrays.push_back({array.offset_bytes, array.count});
  const InputFile file(io, scratch);
  skeleton.bytes = file.bytes();
  skeleton.gaps = read_gaps(file, skeleton);
  if (io.unlink(scratch) != 0) fail_storage(scratch, "remove", errno);
  return skeleton;
}

ArraySource array_in_memory(const void* array, DType dtype) {
  return [from = static_cast<const std::byte*>(array), size = element_bytes(dtype)](int64_t first,
                                                                                    int64_t count, void* to) {
    std::memcpy(to, from + first * size, static_cast<size_t>(count * size));
  };
}

ArraySource array_of_zeros(DType dtype) {
  return [size = element_bytes(dtype)](int64_t, int64_t count, void* to) {
    std::memset(to, 0, static_cast<size_t>(count * size));
  };
}

FileBlocks write_rank_file(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                           std::span<const ArraySource> sources) {
  FileBytes bytes(skeleton, sources);
  FileBlocks blocks{skeleton.bytes, skeleton.arrays, {}};
  std::vector<char> buffer(static_cast<size_t>(std::min(blocks.bytes, FileBlocks::kBlockBytes)));
  OutputFile file(io, path);
  for (int64_t block = 0; block < blocks.block_count(); ++block) {
    const int64_t count = blocks.block_bytes(block);
    bytes.copy(buffer.data(), count);
    // Hash the copy that is written: a hash of the source would not notice an error in the copy.
    blocks.hashes.push_back(hash64(buffer.data(), count));
    // The last block gives the file its size.
    if (block + 1 < blocks.block_count() && is_zero(buffer.data(), count)) continue;
    file.write_at(block * FileBlocks::kBlockBytes, buffer.data(), count);
  }
  // Before the manifest is written: it vouches for bytes that are on the disk.
  file.sync();
  file.close();
  return blocks;
}

void read_back(Io& io, const std::filesystem::path& path, const FileBlocks& blocks) {
  BlockReader reader(io, path, blocks);
  if (reader.file_bytes() != blocks.bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, {} were written", path.string(), reader.file_bytes(),
         blocks.bytes);
  // The page cache would return the written bytes even if the disk has others.
  reader.forget();
  // A block of zeros is a hole, and nothing was written that could be wrong; to read one takes longer than to
  // read a disk.
  const std::vector<char> zeros(static_cast<size_t>(std::min(blocks.bytes, FileBlocks::kBlockBytes)));
  const uint64_t hash_of_zeros = hash64(zeros.data(), std::ssize(zeros));
  for (int64_t block = 0; block < blocks.block_count(); ++block)
    if (blocks.hashes[static_cast<size_t>(block)] != hash_of_zeros) reader.load_block(block);
}

}  // namespace ripstop
