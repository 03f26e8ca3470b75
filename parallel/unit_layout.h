// UnitLayout and Box: where the elements of a unit lie, in memory and in the logical parameters. Pure
// arithmetic. Initialisation, checkpoints and resharding know nothing else of the mesh.
#pragma once
#include <cstdint>
#include <vector>

#include "model/parameter.h"

namespace ripstop {

/// A rectangle of a logical parameter, and the place of its rows in a unit's flat buffer.
struct Box {
  const ParameterSpec* parameter = nullptr;  ///< parameter of the UnitSpec from which the layout was made
  int64_t row = 0, column = 0;               ///< first logical row and column
  int64_t rows = 0, columns = 0;
  int64_t offset = 0;  ///< element of the flat buffer at which the first row begins
  int64_t stride = 0;  ///< elements of the flat buffer from one row to the next

  bool empty() const { return rows == 0 || columns == 0; }
};

/// One unit's flat buffer on one rank of the tensor axis. The unit's physical tensors lie end to end,
/// replicated ones first; each begins on a multiple of 256 elements. The buffer is padded to a multiple of
/// fsdp * 256 elements and cut into equal shards: rank i of the fsdp axis stores shard i. The UnitSpec must
/// outlive the layout.
class UnitLayout {
 public:
  /// Version of this layout; checkpoints record it, because their files hold shards.
  static constexpr int kVersion = 1;
  static constexpr int64_t kGrain = 256;

  UnitLayout(const UnitSpec& unit, int64_t tensor_count, int64_t tensor_index, int64_t fsdp_count);

  /// Returns the layout of the same flat buffer cut into `parts` times as many shards. The padding of the new
  /// layout may be longer, so every `parts`-th of its shards need not end where a shard of this layout ends.
  UnitLayout finer(int64_t parts) const;

  const UnitSpec& unit() const { return *unit_; }
  /// Elements of the whole flat buffer, padding included; equal on all ranks of the tensor axis.
  int64_t elements() const { return elements_; }
  int64_t shard_elements() const { return elements_ / fsdp_count_; }
  /// The number of elements at the beginning of the buffer that are the same on all ranks of the tensor axis;
  /// a multiple of kGrain.
  int64_t replicated_elements() const { return replicated_elements_; }
  /// The number of elements at the beginning of the buffer that belong to vectors, which are replicated; a
  /// multiple of kGrain.
  int64_t vector_elements() const { return vector_elements_; }
  /// The index in the flat buffer of the first element of each tensor in unit().tensors.
  const std::vector<int64_t>& tensor_offsets() const { return tensor_offsets_; }
  /// This rank's slice of every logical parameter, in the order of the flat buffer and without padding. A
  /// slice is empty if all of it is padding.
  const std::vector<Box>& slices() const { return slices_; }

  /// The logical elements in [begin, end) of the flat buffer, without padding: at most three boxes a
  /// parameter, in order.
  std::vector<Box> boxes(int64_t begin, int64_t end) const;

 private:
  const UnitSpec* unit_;
  int64_t fsdp_count_;
  int64_t elements_ = 0;
  int64_t replicated_elements_ = 0;
  int64_t vector_elements_ = 0;
  std::vector<int64_t> tensor_offsets_;
  std::vector<Box> slices_;
};

/// Writes zeros to the padding in [begin, end) of a flat buffer of `dtype`; `to` points at element `begin`.
/// Elements of parameters do not change.
void zero_padding(const UnitLayout& layout, int64_t begin, int64_t end, void* to, DType dtype);

/// The part that two boxes of the same logical parameter have in common, with offset and stride as in the
/// first box; empty if they have nothing in common. Throws Error(kBug) if the boxes are of different
/// parameters.
Box intersection(const Box& a, const Box& b);

}  // namespace ripstop
