// Computes which elements each rank writes into its file, and which pieces of the files a rank reads on any
// mesh. Opens no file. docs/formats.md describes the files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/parameter.h"
#include "parallel/device_mesh.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// The saved values of an element: the weight, and AdamW's averages of the gradient and of its square.
enum class UnitState : uint8_t { kMaster, kFirstMoment, kSecondMoment };
inline constexpr int kUnitStateCount = 3;
inline constexpr UnitState kUnitStates[] = {UnitState::kMaster, UnitState::kFirstMoment,
                                            UnitState::kSecondMoment};
std::string_view to_string(UnitState state);

/// The dtype of `state`: float32 for weights, `moments` for moments.
constexpr DType state_dtype(UnitState state, DType moments) {
  return state == UnitState::kMaster ? DType::kFloat32 : moments;
}

/// A rank's shard of one unit: three borrowed arrays of shard_elements() in host or device memory. Saving
/// reads them, loading overwrites them. CheckpointReader::read skips null arrays.
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

/// Elements [begin, end) of a unit's flat buffer in a rank's file: the rank's shard, without the replicated
/// elements unless the rank has the tensor index 0.
struct UnitShard {
  int64_t unit = 0;  ///< index of the unit in the `units` of stored_shards()
  int64_t begin = 0, end = 0;
  int64_t elements() const { return end - begin; }
};

/// The shards in the file of rank `rank`, in the order of `units`; empty if the rank has no file. `units`: at
/// least the saved units of the rank's stage (UnitSpec::stage).
std::vector<UnitShard> stored_shards(const std::vector<UnitSpec>& units, const MeshSizes& mesh, int64_t rank);

/// The address of the first element of `shard` in the array `state` of `unit`, which holds the whole shard
/// `fsdp_index`. Replicated elements that another rank stores lie before this address.
std::byte* stored_begin(const UnitStates& unit, UnitState state, const UnitShard& shard, int64_t fsdp_index);

struct StoredArray {
  int64_t elements = 0;
  DType dtype = DType::kFloat32;
  int64_t bytes() const { return elements * element_bytes(dtype); }
};

/// The arrays in the file that stores `shards`: kUnitStateCount for each shard.
std::vector<StoredArray> stored_arrays(const std::vector<UnitShard>& shards, DType moments);

/// The ranks that store at least one element, in ascending order.
std::vector<int64_t> storing_ranks(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

/// The number of elements of one state in a checkpoint of `units` on `mesh`, with padding.
int64_t checkpoint_elements(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

/// The bytes of all arrays in a checkpoint of `units` on `mesh`, without headers, sidecars and manifest.
int64_t checkpoint_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh, DType moments);

/// A rectangle that one stored shard and one wanted shard share: `rows` rows of `columns` elements.
struct Piece {
  int64_t rank = 0;   ///< rank whose file has the rectangle
  int64_t shard = 0;  ///< index of the stored shard in stored_shards of that rank
  int64_t rows = 0, columns = 0;
  int64_t source = 0, source_stride = 0;  ///< first element in the stored shard, and elements from row to row
  int64_t unit = 0;                       ///< index of the unit in `layouts` of ReadPlan::pieces
  int64_t target = 0, target_stride = 0;  ///< first element in the wanted shard, and elements from row to row
};

/// The layout of a checkpoint of `units` on `mesh`.
class ReadPlan {
 public:
  /// `units` must outlive this.
  ReadPlan(const std::vector<UnitSpec>& units, const MeshSizes& mesh);

  /// The pieces that fill shard `fsdp_index` of each of `layouts`, ordered by rank and stored shard. Each
  /// element except padding is in exactly one piece. Throws Error(kStorage) if the checkpoint lacks a
  /// parameter or has it in another shape.
  std::vector<Piece> pieces(const std::vector<const UnitLayout*>& layouts, int64_t fsdp_index) const;

 private:
  const std::vector<UnitSpec>* units_;
  MeshSizes mesh_;
  std::vector<std::vector<UnitLayout>> layouts_;  // by tensor index, then unit
  std::vector<std::vector<UnitShard>> shards_;    // by rank
};

/// Throws Error(kStorage) if the parameters in a checkpoint's `units` and in `table` differ in name or shape.
void check_same_parameters(const std::vector<UnitSpec>& units, const std::vector<UnitSpec>& table);

}  // namespace ripstop
