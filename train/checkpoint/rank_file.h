// A rank's file. libhdf5 lays it out once; then ripstop writes, hashes and syncs every byte itself.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "data/process/block_threads.h"
#include "model/core/function_ref.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/file_blocks.h"

namespace ripstop {

/// An HDF5 file without the contents of its arrays. A rank's file has the same skeleton in every save.
struct RankFileSkeleton {
  int64_t bytes = 0;                      ///< of the whole file
  std::vector<FileBlocks::Array> arrays;  ///< three for each stored shard, in any order of offsets
  std::vector<DType> dtypes;              ///< of each array
  std::vector<std::string>
      gaps;  ///< the bytes before each array, by offset, and behind the last; may be empty
};

/// Lets libhdf5 make the file of `shards` at the path `scratch`, keeps all bytes that are in no array, and
/// removes the file. The arrays of that file are holes: it takes a few KiB on the disk. Main thread only
/// (libhdf5). Throws Error(kStorage).
RankFileSkeleton make_skeleton(Io& io, const std::filesystem::path& scratch,
                               const std::vector<UnitSpec>& units, const MeshCoordinates& coordinates,
                               const std::vector<UnitShard>& shards, DType moments);

/// Copies elements [first, first + count) of an array, in its dtype, to `to`. Intervals come in any order, at
/// most a block of FileBlocks at a time, and from several threads at once. Empty: an array of zeros.
using ArraySource = std::function<void(int64_t first, int64_t count, void* to)>;

/// The arrays of a rank's file, and how they get there.
struct RankFileWork {
  std::span<const ArraySource> sources;  ///< one for each array of the skeleton, in its order
  std::vector<int64_t> first = {};       ///< arrays that are copied before all others, in this order
  /// Called when the last byte of an array has been copied from its source, which is not asked again for it.
  /// On any of the threads. May be empty.
  std::function<void(int64_t array)> copied = {};
  bool reads_back = true;
  int64_t threads = kBlockThreads;
};

/// Writes the new file `path` from the skeleton and the sources, and syncs it. Hashes are of the written
/// bytes: each block is copied, hashed and written from the copy. A block of zeros is a hole of the file.
/// With `reads_back`, every other block is read again, from the device if the system allows it, and compared
/// while later ones are written. At most kBlockThreads threads work, with a block of memory each; the bytes
/// of the file do not depend on `first` and `threads`. `watch` is called on the caller's thread, a few times
/// a second, with a number that rises with each block that is written or read back; what it throws ends the
/// work. Calls no MPI, HDF5 or device function (unless a source does): any thread may call it. Returns the
/// contents of the sidecar. Throws Error(kStorage), and what a source throws.
FileBlocks write_rank_file(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                           const RankFileWork& work, FunctionRef<void(int64_t progress)> watch);

}  // namespace ripstop
