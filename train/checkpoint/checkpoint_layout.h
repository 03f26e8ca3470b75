// Which rank writes which elements into which file, and which of them another mesh must read: arithmetic on
// UnitLayout, without a file.
//
// Checkpoint layout (format version 1)
//
//   checkpoints/step_00001000/       committed by the rename from .tmp.step_00001000.*
//     manifest.json                  what the checkpoint is; written last; ends with its own hash
//     rank_00000.h5                  HDF5: one contiguous 1-D float32 array per unit and state, for example
//                                    "layers.3/master"
//     rank_00000.blocks              hash of every 1 MiB of rank_00000.h5, and where its arrays begin
//
// The number is the rank's place in the mesh, (replicate index * fsdp + fsdp index) * tensor + tensor index.
// Its array of unit u holds elements [max(f * n, s), (f + 1) * n) of the unit's flat buffer (UnitLayout,
// layout version 1), n = elements of a range, f = fsdp index, s = 0 for tensor index 0 and the replicated
// elements for the others: what all ranks of the tensor axis hold alike is written once. Padding is in the
// arrays, and zero. Replicate index r writes the units u with u mod replicate = r. Empty arrays are left out,
// and so are files without an array. The manifest has the parameter table and the mesh sizes, from which all
// of this follows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/parameter.h"
#include "parallel/device_mesh.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// A rank's place in a mesh; rank = (replicate index * fsdp + fsdp index) * tensor + tensor index.
struct RankPlace {
  MeshSizes mesh;
  int64_t replicate_index = 0, fsdp_index = 0, tensor_index = 0;
  int64_t rank() const { return (replicate_index * mesh.fsdp + fsdp_index) * mesh.tensor + tensor_index; }
};

/// The place of rank `rank`, 0 <= rank < mesh.ranks().
RankPlace rank_place(const MeshSizes& mesh, int64_t rank);

/// What is kept of each element, all float32: weights, and AdamW's mean and mean square of gradients.
enum class UnitState : uint8_t { kMaster, kFirstMoment, kSecondMoment };
inline constexpr int kUnitStateCount = 3;
/// "master", "first_moment", "second_moment".
const char* name(UnitState state);

/// This rank's range of one unit, in host memory: shard_elements() floats each, range fsdp_index of the flat
/// buffer. Saving reads them, loading overwrites them (moments may be null there: left in the file).
/// Borrowed.
struct UnitStates {
  const UnitLayout* layout = nullptr;
  float* master = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
};

/// The elements [begin, end) of a unit's flat buffer that one rank's file holds, once for each UnitState.
struct StoredRange {
  int64_t unit = 0;  ///< index in the parameter table
  int64_t begin = 0, end = 0;
  int64_t elements() const { return end - begin; }
};

/// The ranges in the file of the rank at `place`, by unit; none: the rank writes no file. A file's arrays lie
/// in this order, the three states of a unit one after the other.
std::vector<StoredRange> stored_ranges(const std::vector<UnitSpec>& units, const RankPlace& place);

/// The ranks that have something to store, in order.
std::vector<int64_t> storing_ranks(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

/// Bytes of all arrays of a checkpoint of `units` on `mesh`; what lies around them adds some KiB a file.
int64_t checkpoint_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

/// Rows that lie in one stored range and belong into one target range. Rows are `columns` elements long.
struct Piece {
  int64_t rank = 0;   ///< whose file
  int64_t range = 0;  ///< index in stored_ranges of that rank
  int64_t rows = 0, columns = 0;
  int64_t source = 0, source_stride = 0;  ///< first element in the stored range, and to the next row
  int64_t unit = 0;                       ///< index among the targets
  int64_t target = 0, target_stride = 0;  ///< first element in the target range, and to the next row
};

/// Where a part of a unit is wanted: elements [begin, end) of `layout`'s flat buffer.
struct TargetRange {
  const UnitLayout* layout = nullptr;
  int64_t begin = 0, end = 0;
};

/// All pieces that fill `targets` from a checkpoint of `units` on `mesh`, in the order of ranks and ranges.
/// Every logical element of a target is in exactly one. Throws Error(kStorage) where a target's parameter is
/// missing in `units` or has another shape, naming both.
std::vector<Piece> plan_reads(const std::vector<UnitSpec>& units, const MeshSizes& mesh,
                              const std::vector<TargetRange>& targets);

}  // namespace ripstop
