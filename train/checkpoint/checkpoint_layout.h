// The elements that each rank writes into its file, and the pieces of files that each rank of another mesh
// reads. Arithmetic on UnitLayout; opens no file. docs/formats.md describes the files.
//
// A save writes a rank's UnitShard of each unit as one FileBlocks::Array for each UnitState. A load reads the
// Pieces that stored UnitShards share with the shards of its own mesh into UnitStates.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameter.h"
#include "parallel/device_mesh.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// The saved values of an element: the weight, and AdamW's means of the gradient and of its square.
enum class UnitState : uint8_t { kMaster, kFirstMoment, kSecondMoment };
inline constexpr int kUnitStateCount = 3;
inline constexpr UnitState kUnitStates[] = {UnitState::kMaster, UnitState::kFirstMoment,
                                            UnitState::kSecondMoment};
/// "master", "first_moment", "second_moment".
std::string_view to_string(UnitState state);

/// The dtype of a state: float32 for weights, `moments` for moments.
constexpr DType state_dtype(UnitState state, DType moments) {
  return state == UnitState::kMaster ? DType::kFloat32 : moments;
}

/// A rank's shard of one unit: three borrowed arrays of shard_elements(), on the model's device (live_states)
/// or in host memory. Saving reads them, loading overwrites them. Loading skips a moment that is null.
struct UnitStates {
  const UnitLayout* layout = nullptr;
  float* master = nullptr;
  void* first_moment = nullptr;
  void* second_moment = nullptr;
  DType moments = DType::kFloat32;  ///< dtype of both moments: float32 or bfloat16

  std::byte* array(UnitState state) const {
    return static_cast<std::byte*>(state == UnitState::kMaster        ? master
                                   : state == UnitState::kFirstMoment ? first_moment
                                                                      : second_moment);
  }
};

/// The stored part of a rank's shard of one unit: elements [begin, end) of the unit's flat buffer. Tensor
/// index 0 stores the whole shard, the others their shards without replicated elements.
struct UnitShard {
  int64_t unit = 0;  ///< index in the function's list of units
  int64_t begin = 0, end = 0;
  int64_t elements() const { return end - begin; }
};

/// The shards in the file of rank `rank` of `mesh`, in the order of `units`; none if the rank has no file.
/// The sidecar lists the arrays in this order, the three states of a unit one after the other.
std::vector<UnitShard> stored_shards(const std::vector<UnitSpec>& units, const MeshSizes& mesh, int64_t rank);

/// The first stored byte of a state of `unit`, which is shard `fsdp_index`; `shard` is its stored part.
std::byte* stored_begin(const UnitStates& unit, UnitState state, const UnitShard& shard, int64_t fsdp_index);

/// An array of a rank's file.
struct StoredArray {
  int64_t elements = 0;
  DType dtype = DType::kFloat32;
  int64_t bytes() const { return elements * element_bytes(dtype); }
};

/// The arrays of the file of `shards`: kUnitStateCount for each.
std::vector<StoredArray> stored_arrays(const std::vector<UnitShard>& shards, DType moments);

/// The ranks that store at least one element, in order.
std::vector<int64_t> storing_ranks(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

/// The elements of one state in a checkpoint of `units` on `mesh`, padding included.
int64_t checkpoint_elements(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

/// The bytes of all arrays of such a checkpoint. Headers and sidecars add some KiB to each file.
int64_t checkpoint_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh, DType moments);

/// A rectangle that one stored shard and one wanted shard share: `rows` rows of `columns` elements.
struct Piece {
  int64_t rank = 0;   ///< rank whose file has it
  int64_t shard = 0;  ///< index in stored_shards of that rank
  int64_t rows = 0, columns = 0;
  int64_t source = 0, source_stride = 0;  ///< first element in the stored shard, and distance to the next row
  int64_t unit = 0;                       ///< index in `layouts` of ReadPlan::pieces
  int64_t target = 0, target_stride = 0;  ///< first element in the wanted shard, and distance to the next row
};

/// The layout of a checkpoint of `units` on `mesh`, from which loads get their pieces. Takes some 24 bytes
/// for each unit and rank.
class ReadPlan {
 public:
  /// `units` must outlive this.
  ReadPlan(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

  /// The pieces that fill shard `fsdp_index` of each of `layouts`, ordered by rank and stored shard. Every
  /// logical element of a wanted shard is in exactly one piece. Throws as check_parameters.
  std::vector<Piece> pieces(const std::vector<const UnitLayout*>& layouts, int64_t fsdp_index) const;

 private:
  const std::vector<UnitSpec>* units_;
  MeshSizes mesh_;
  std::vector<std::vector<UnitLayout>> layouts_;  // by tensor index, then unit
  std::vector<std::vector<UnitShard>> shards_;    // by rank
};

/// Throws Error(kStorage) if `units`, which a checkpoint holds, lack a parameter of `wanted` or have it in
/// another shape.
void check_parameters(const std::vector<UnitSpec>& units, const UnitSpec& wanted);

/// Throws Error(kStorage) if `units`, which a checkpoint holds, differ from `table`, the whole model, in any
/// parameter.
void check_same_parameters(const std::vector<UnitSpec>& units, const std::vector<UnitSpec>& table);

}  // namespace ripstop
