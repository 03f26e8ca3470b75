// A rank's file: HDF5 lays it out once, then every byte is written, hashed and synced by ripstop itself.
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

/// An HDF5 file less the contents of its arrays. Every file of one rank has the same, save after save.
struct RankFileSkeleton {
  struct Part {
    int64_t offset_bytes = 0;
    std::string bytes;
  };
  int64_t bytes = 0;                      ///< of the whole file
  std::vector<FileBlocks::Array> arrays;  ///< three for each stored range, in its order
  std::vector<Part> parts;                ///< everything outside the arrays, by offset
};

/// Lets libhdf5 make the file of `ranges` at the path `scratch`, keeps what is not array, and removes the
/// file, which takes little room on the disk (holes). Main thread only. Throws Error(kStorage).
RankFileSkeleton make_skeleton(Io& io, const std::filesystem::path& scratch,
                               const std::vector<UnitSpec>& units, const RankPlace& place,
                               const std::vector<StoredRange>& ranges);

/// Writes the file `path` (new) from the skeleton and one source for each array, and syncs it. Each block is
/// copied, hashed and written from the copy, so the hash is that of the written bytes. Calls no MPI, HDF5 or
/// device function: any thread may. Returns the contents of its sidecar. Throws Error(kStorage).
FileBlocks write_rank_file(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                           std::span<const float* const> sources);

/// Reads the file again, from the device where the system allows it, and compares every block. Throws
/// Error(kStorage).
void read_back(Io& io, const std::filesystem::path& path, const FileBlocks& blocks);

}  // namespace ripstop
