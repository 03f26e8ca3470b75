#include "train/checkpoint/rank_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/hash.h"
#include "data/hdf5.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// What lies where in the file.
struct Segment {
  int64_t begin = 0, end = 0;
  const char* bytes = nullptr;
};

std::vector<Segment> segments_of(const RankFileSkeleton& skeleton, std::span<const float* const> sources) {
  RIPSTOP_CHECK(sources.size() == skeleton.arrays.size(), "{} sources for {} arrays", sources.size(),
                skeleton.arrays.size());
  std::vector<Segment> segments;
  for (const RankFileSkeleton::Part& part : skeleton.parts)
    segments.push_back(
        {part.offset_bytes, part.offset_bytes + static_cast<int64_t>(part.bytes.size()), part.bytes.data()});
  for (size_t i = 0; i < sources.size(); ++i) {
    const FileBlocks::Array& array = skeleton.arrays[i];
    segments.push_back({array.offset_bytes, array.offset_bytes + array.elements * 4,
                        reinterpret_cast<const char*>(sources[i])});
  }
  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
  return segments;
}

/// Reads everything of the file that is in no array.
std::vector<RankFileSkeleton::Part> read_parts(const File& file, int64_t bytes,
                                               std::vector<FileBlocks::Array> arrays) {
  std::sort(arrays.begin(), arrays.end(), [](const FileBlocks::Array& a, const FileBlocks::Array& b) {
    return a.offset_bytes < b.offset_bytes;
  });
  arrays.push_back({bytes, 0});
  std::vector<RankFileSkeleton::Part> parts;
  int64_t at = 0;
  for (const FileBlocks::Array& array : arrays) {
    RIPSTOP_CHECK(array.offset_bytes >= at, "an array at byte {}, {} is taken", array.offset_bytes, at);
    if (array.offset_bytes > at) {
      parts.push_back({at, std::string(static_cast<size_t>(array.offset_bytes - at), '\0')});
      file.read(parts.back().bytes.data(), array.offset_bytes - at, at);
    }
    at = array.offset_bytes + array.elements * 4;
  }
  RIPSTOP_CHECK(at == bytes, "arrays end at byte {}, the file at {}", at, bytes);
  return parts;
}

}  // namespace

RankFileSkeleton make_skeleton(Io& io, const std::filesystem::path& scratch,
                               const std::vector<UnitSpec>& units, const RankPlace& place,
                               const std::vector<StoredRange>& ranges) {
  std::vector<Hdf5ArraySpec> specs;
  for (const StoredRange& range : ranges)
    for (int state = 0; state < kUnitStateCount; ++state)
      specs.push_back({fmt::format("{}/{}", units[static_cast<size_t>(range.unit)].name,
                                   name(static_cast<UnitState>(state))),
                       Hdf5Type::kFloat32, range.elements()});
  const Hdf5Attributes attributes = {{"format", std::string("ripstop checkpoint")},
                                     {"version", int64_t{Manifest::kVersion}},
                                     {"replicate_index", place.replicate_index},
                                     {"fsdp_index", place.fsdp_index},
                                     {"tensor_index", place.tensor_index}};
  RankFileSkeleton skeleton;
  for (const Hdf5Array& array : create_hdf5(scratch, specs, attributes))
    skeleton.arrays.push_back({array.offset_bytes, array.count});
  Io::Status status;
  if (io.status(scratch, status) != 0) fail_storage(scratch, "find it", errno);
  skeleton.bytes = status.bytes;
  skeleton.parts = read_parts(File::open(io, scratch), skeleton.bytes, skeleton.arrays);
  if (io.unlink(scratch) != 0) fail_storage(scratch, "remove it", errno);
  return skeleton;
}

FileBlocks write_rank_file(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                           std::span<const float* const> sources) {
  const std::vector<Segment> segments = segments_of(skeleton, sources);
  FileBlocks blocks{skeleton.bytes, skeleton.arrays, {}};
  std::vector<char> buffer(static_cast<size_t>(std::min(blocks.bytes, FileBlocks::kBlockBytes)));
  File file = File::create(io, path);
  auto segment = segments.begin();
  for (int64_t block = 0; block < blocks.block_count(); ++block) {
    const int64_t begin = block * FileBlocks::kBlockBytes, count = blocks.block_bytes(block);
    for (int64_t at = begin; at < begin + count;) {
      const int64_t part = std::min(begin + count, segment->end) - at;
      std::memcpy(buffer.data() + (at - begin), segment->bytes + (at - segment->begin),
                  static_cast<size_t>(part));
      at += part;
      if (at == segment->end) ++segment;
    }
    blocks.hashes.push_back(hash64(buffer.data(), count));
    file.write(buffer.data(), count, begin);
  }
  file.sync();
  file.close();
  return blocks;
}

void read_back(Io& io, const std::filesystem::path& path, const FileBlocks& blocks) {
  Io::Status status;
  if (io.status(path, status) != 0) fail_storage(path, "find it", errno);
  if (status.bytes != blocks.bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, {} were written", path.string(), status.bytes, blocks.bytes);
  BlockReader reader(io, path, blocks);
  reader.forget();
  for (int64_t block = 0; block < blocks.block_count(); ++block) reader.load_block(block);
}

}  // namespace ripstop
