// A rank's file: libhdf5 lays it out once; ripstop writes, hashes and syncs it itself.
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

/// An HDF5 file without the contents of its arrays, for all saves of a rank.
struct RankFileSkeleton {
  int64_t bytes = 0;
  std::vector<FileBlocks::Array> arrays;  ///< three for each stored shard; offsets in any order
  std::vector<DType> dtypes;
  /// The bytes before each array, in file order, and after the last array; some may be "".
  std::vector<std::string> gaps;
};

/// Makes the file of `shards` at `scratch` with libhdf5, reads all bytes outside of arrays, and removes the
/// file. Its arrays are holes, so the file is small. Main thread only. Throws Error(kStorage).
RankFileSkeleton make_skeleton(Io& io, const std::filesystem::path& scratch,
                               const std::vector<UnitSpec>& units, const MeshCoordinates& coordinates,
                               const std::vector<UnitShard>& shards, DType moments);

/// Copies elements [first, first + count) of an array, in its dtype, to `to`. Several threads may call it at
/// once, in any order, for at most a block each. An empty function means an array of zeros.
using ArraySource = std::function<void(int64_t first, int64_t count, void* to)>;

/// Settings for writing a rank's file. Only `sources` changes the bytes of the file.
struct RankFileWork {
  std::span<const ArraySource> sources;  ///< one for each array of the skeleton, in its order
  std::vector<int64_t> first = {};       ///< arrays to copy before all others, in this order
  /// Called on any thread when an array's source has been called for the last time. May be empty.
  std::function<void(int64_t array)> copied = {};
  int64_t threads = kBlockThreads;  ///< at most kBlockThreads; each thread needs a block of memory
};

/// Writes the new file `path` from the skeleton and the sources, and syncs it. Each block is hashed and
/// written from a copy; later it is read again, from the device if the system allows it, and compared. A
/// block of zeros, except the last one, becomes a hole. `watch` is called on the caller's thread, a few times
/// a second, with a number that rises as blocks are written and read back; an exception from `watch` ends
/// the work. Any thread may call: uses no MPI, HDF5 or device function, unless a source does. Returns the
/// contents of the sidecar. Throws Error(kStorage), and what a source throws.
FileBlocks write_rank_file(Io& io, const std::filesystem::path& path, const RankFileSkeleton& skeleton,
                           const RankFileWork& work, FunctionRef<void(int64_t progress)> watch);

}  // namespace ripstop
