// A rank's file. libhdf5 lays it out once; then ripstop writes, hashes and syncs every byte itself.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/io.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/file_blocks.h"

namespace ripstop {

/// An HDF5 file without the contents of its arrays. A rank's file has the same skeleton in every save.
struct RankFileSkeleton {
  int64_t bytes = 0;                      ///< of the whole file
  std::vector<FileBlocks::Array> arrays;  ///< three for each stored shard, in any order of offsets
  std::vector<std::string>
      gaps;  ///< by offset: the bytes before each array, and those after the last one; may be empty
};

/// Lets libhdf5 make the file of `shards` at the path `scratch`, keeps all bytes that are in no array, and
/// removes the file. The arrays of that file are holes: it takes a few KiB on the disk. Main thread only
/// (libhdf5). Throws Error(kStorage).
RankFileSkeleton make_skeleton(Io& io, const std::filesystem::path& scratch,
                               const std::vector<UnitSpec>& units, const MeshCoordinates& coordinates,
                               const std::vector<UnitShard>& shards);

/// Writes the new file `path` from the skeleton and one source for each array, and syncs it. Each block is
/// copied, hashed and written from the copy, so the hash is that of the written bytes. Calls no MPI, HDF5 or
/// device function: any thread may call it. Returns the contents of the sidecar. Throws Error(kStorage).
FileBlocks write_rank_file(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                           std::span<const float* const> sources);

/// Reads the file again, from the device if the system allows it, and compares every block with its hash.
/// Throws Error(kStorage).
void read_back(Io& io, const std::filesystem::path& path, const FileBlocks& blocks);

}  // namespace ripstop
