#include "train/checkpoint/rank_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "data/files/checked_output.h"
#include "data/files/hash.h"
#include "data/hdf5/hdf5.h"
#include "model/core/error.h"
#include "model/core/rounding.h"

namespace ripstop {
namespace {

/// The indices of the arrays by offset, because libhdf5 may not place arrays in the order of their creation.
std::vector<size_t> by_offset(const std::vector<FileBlocks::Array>& arrays) {
  std::vector<size_t> order(arrays.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return arrays[a].offset_bytes < arrays[b].offset_bytes; });
  return order;
}

/// The bytes of a rank's file, from skeleton and sources. Several threads may call the members.
class FileBytes {
 public:
  /// The arguments are borrowed.
  FileBytes(const RankFileSkeleton& skeleton, std::span<const ArraySource> sources) {
    RIPSTOP_CHECK(sources.size() == skeleton.arrays.size(), "{} sources for {} arrays", sources.size(),
                  skeleton.arrays.size());
    for (const size_t i : by_offset(skeleton.arrays)) {
      append({.gap = skeleton.gaps[parts_.size() / 2]});
      const int64_t size = element_bytes(skeleton.dtypes[i]);
      append({.array = &sources[i],
              .number = static_cast<int64_t>(i),
              .element_bytes = size,
              .bytes = skeleton.arrays[i].elements * size});
      // Blocks end at multiples of 1 MiB, so they cut no element of an aligned array.
      RIPSTOP_CHECK(skeleton.arrays[i].offset_bytes % size == 0, "an array begins at byte {}",
                    skeleton.arrays[i].offset_bytes);
    }
    append({.gap = skeleton.gaps.back()});
  }

  /// Whether all bytes in [offset, offset + count) belong to arrays of zeros.
  bool are_zeros(int64_t offset, int64_t count) const {
    for (auto part = part_at(offset); part != parts_.end() && part->begin < offset + count; ++part)
      if (part->bytes > 0 && (part->array == nullptr || *part->array)) return false;
    return true;
  }

  /// Calls `body` with each array that has bytes in [offset, offset + count).
  void each_array(int64_t offset, int64_t count, FunctionRef<void(int64_t array)> body) const {
    for (auto part = part_at(offset); part != parts_.end() && part->begin < offset + count; ++part)
      if (part->array != nullptr && part->bytes > 0) body(part->number);
  }

  void copy(int64_t offset, char* to, int64_t count) const {
    for (auto part = part_at(offset); count > 0; ++part) {
      const int64_t first = offset - part->begin, size = std::min(count, part->bytes - first);
      if (size <= 0) continue;
      if (part->array == nullptr)
        std::memcpy(to, part->gap.data() + first, static_cast<size_t>(size));
      else if (*part->array)
        (*part->array)(first / part->element_bytes, size / part->element_bytes, to);
      else
        std::memset(to, 0, static_cast<size_t>(size));
      to += size, offset += size, count -= size;
    }
  }

 private:
  struct Part {
    std::string_view gap = {};
    const ArraySource* array = nullptr;  ///< source of the array; null for a gap
    int64_t number = 0;                  ///< index of the array in the skeleton
    int64_t element_bytes = 1, bytes = 0, begin = 0;
  };

  void append(Part part) {
    if (part.array == nullptr) part.bytes = std::ssize(part.gap);
    part.begin = parts_.empty() ? 0 : parts_.back().begin + parts_.back().bytes;
    parts_.push_back(part);
  }
  std::vector<Part>::const_iterator part_at(int64_t offset) const {
    return std::ranges::upper_bound(parts_, offset, {}, &Part::begin) - 1;
  }

  std::vector<Part> parts_;
};

bool is_zero(const char* bytes, int64_t count) {
  return *bytes == 0 && std::memcmp(bytes, bytes + 1, static_cast<size_t>(count - 1)) == 0;
}

/// The file's blocks in the order of writing: blocks of the arrays `first`, then the others.
std::vector<int64_t> order_of_blocks(const FileBlocks& blocks, const std::vector<DType>& dtypes,
                                     const std::vector<int64_t>& first) {
  std::vector<int64_t> order;
  std::vector<char> taken(static_cast<size_t>(blocks.block_count()), false);
  const auto take = [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      if (!std::exchange(taken[static_cast<size_t>(block)], true)) order.push_back(block);
  };
  for (const int64_t i : first) {
    const FileBlocks::Array& array = blocks.arrays[static_cast<size_t>(i)];
    const int64_t end = array.offset_bytes + array.elements * element_bytes(dtypes[static_cast<size_t>(i)]);
    take(array.offset_bytes / FileBlocks::kBlockBytes, divide_up(end, FileBlocks::kBlockBytes));
  }
  take(0, blocks.block_count());
  return order;
}

/// Writes a rank's file, in stretches of kStretch blocks.
class RankFileWriter {
 public:
  RankFileWriter(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                 const RankFileWork& work)
      : bytes_(skeleton, work.sources),
        work_(work),
        blocks_{skeleton.bytes, skeleton.arrays, {}},
        order_(order_of_blocks(blocks_, skeleton.dtypes, work.first)),
        uncopied_(skeleton.arrays.size()),
        file_(io, path) {
    blocks_.hashes.resize(static_cast<size_t>(blocks_.block_count()));
    for (int64_t block = 0; block < blocks_.block_count(); ++block)
      bytes_.each_array(block * FileBlocks::kBlockBytes, blocks_.block_bytes(block),
                        [&](int64_t array) { ++uncopied_[static_cast<size_t>(array)]; });
    const std::vector<char> zeros(static_cast<size_t>(FileBlocks::kBlockBytes));
    hash_of_zeros_ = hash64(zeros.data(), std::ssize(zeros));
  }

  int64_t progress() const { return progress_; }
  int64_t stretches() const { return divide_up(std::ssize(order_), kStretch); }

  void write_stretch(int64_t thread, int64_t number) {
    Memory& memory = memory_[static_cast<size_t>(thread)];
    const std::vector<WrittenBytes> earlier = std::exchange(memory.unread, {});
    for (int64_t i = number * kStretch; i < std::min((number + 1) * kStretch, std::ssize(order_)); ++i)
      write_block(memory, order_[static_cast<size_t>(i)]), ++progress_;
    // Reads back the previous stretch, which the device has had time to write.
    read_back(memory, earlier);
  }

  FileBlocks finish() {
    for (Memory& memory : memory_) read_back(memory, memory.unread);
    file_.sync_and_close();  // before the manifest is written
    return std::move(blocks_);
  }

 private:
  static constexpr int64_t kStretch = 4;  ///< blocks that a thread takes at once

  struct Memory {
    std::vector<char> block;
    std::vector<WrittenBytes> unread;  ///< written, but not yet read back
  };

  void write_block(Memory& memory, int64_t block) {
    const int64_t offset = block * FileBlocks::kBlockBytes, count = blocks_.block_bytes(block);
    uint64_t& hash = blocks_.hashes[static_cast<size_t>(block)];
    hash = hash_of_zeros_;
    const bool is_last = block + 1 == blocks_.block_count();  // a hole at the end would shorten the file
    bool is_hole = !is_last && bytes_.are_zeros(offset, count);
    if (!is_hole) {
      memory.block.resize(static_cast<size_t>(count));
      bytes_.copy(offset, memory.block.data(), count);
      is_hole = !is_last && is_zero(memory.block.data(), count);
    }
    if (work_.copied)
      bytes_.each_array(offset, count, [&](int64_t array) {
        if (--uncopied_[static_cast<size_t>(array)] == 0) work_.copied(array);
      });
    if (is_hole) return;
    memory.unread.push_back(file_.write_at(offset, memory.block.data(), count));
    hash = memory.unread.back().hash;
  }

  void read_back(Memory& memory, const std::vector<WrittenBytes>& written) {
    for (const WrittenBytes& block : written) file_.read_back(block, memory.block), ++progress_;
  }

  FileBytes bytes_;
  const RankFileWork& work_;
  FileBlocks blocks_;
  const std::vector<int64_t> order_;
  std::vector<std::atomic<int64_t>> uncopied_;  ///< for each array, the number of blocks not yet copied
  std::atomic<int64_t> progress_ = 0;
  uint64_t hash_of_zeros_ = 0;
  CheckedOutput file_;
  std::array<Memory, kBlockThreads> memory_;
};

std::vector<std::string> read_gaps(const InputFile& file, const RankFileSkeleton& skeleton) {
  const std::vector<FileBlocks::Array>& arrays = skeleton.arrays;
  std::vector<std::string> gaps;
  int64_t at = 0;
  const auto read_until = [&](int64_t end) {
    RIPSTOP_CHECK(end >= at, "{}: two arrays share byte {}", file.path().string(), end);
    gaps.push_back(file.text_at(at, end - at));
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
  std::vector<Hdf5Array> specs;
  RankFileSkeleton skeleton;
  for (const StoredArray& array : stored_arrays(shards, moments)) {
    const UnitShard& shard = shards[specs.size() / kUnitStateCount];
    const auto state = static_cast<UnitState>(specs.size() % kUnitStateCount);
    specs.push_back({fmt::format("{}/{}", units[static_cast<size_t>(shard.unit)].name, to_string(state)),
                     array.dtype == DType::kBFloat16 ? Hdf5Type::kBFloat16 : Hdf5Type::kFloat32,
                     array.elements});
    skeleton.dtypes.push_back(array.dtype);
  }
  Hdf5Attributes attributes = {{"format", std::string(Manifest::kFormat)},
                               {"version", int64_t{Manifest::kVersion}}};
  for (const MeshAxis axis : kMeshAxes)
    attributes.emplace_back(fmt::format("{}_index", to_string(axis)), coordinates[axis]);
  for (const Hdf5Array& array : create_hdf5(scratch, specs, attributes))
    skeleton.arrays.push_back({array.offset_bytes, array.count});
  const InputFile file(io, scratch);
  skeleton.bytes = file.bytes();
  skeleton.gaps = read_gaps(file, skeleton);
  if (io.unlink(scratch) != 0) fail_storage(scratch, "remove", errno);
  return skeleton;
}

FileBlocks write_rank_file(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                           const RankFileWork& work, FunctionRef<void(int64_t)> watch) {
  RankFileWriter writer(io, path, skeleton, work);
  share_blocks(
      writer.stretches(), work.threads,
      [&](int64_t thread, int64_t number) { writer.write_stretch(thread, number); },
      [&](int64_t) { watch(writer.progress()); });
  return writer.finish();
}

}  // namespace ripstop
