// Where the elements of a unit lie, in memory and in the logical parameters.
#pragma once
#include <cstdint>
#include <vector>

#include "model/parameter.h"

namespace ripstop {

/// A rectangle of a logical parameter, and the place of its rows in a unit's flat buffer.
struct Box {
  const ParameterSpec* parameter = nullptr;  ///< entry of the layout's UnitSpec
  int64_t row = 0, column = 0;               ///< first logical row and column
  int64_t rows = 0, columns = 0;
  int64_t offset = 0;  ///< index of the first row's first element in the flat buffer
  int64_t stride = 0;  ///< elements of the flat buffer from one row to the next

  bool empty() const { return rows == 0 || columns == 0; }
};

/// A unit's flat buffer on one rank of the tensor axis. The unit's tensors lie end to end, replicated ones
/// first; each begins on a multiple of 256 elements. The buffer is padded to a multiple of fsdp * 256
/// elements and cut into equal shards: rank i of the fsdp axis stores shard i. The UnitSpec must outlive the
/// layout.
class UnitLayout {
 public:
  /// Version of this layout, which checkpoints record, because their files hold shards.
  static constexpr int kVersion = 1;
  static constexpr int64_t kGrain = 256;

  UnitLayout(const UnitSpec& unit, int64_t tensor_count, int64_t tensor_index, int64_t fsdp_count);

  /// This flat buffer cut into `parts` times as many shards. The new padding may be longer, so old shards
  /// need not end where new shards end.
  UnitLayout finer(int64_t parts) const;

  const UnitSpec& unit() const { return *unit_; }
  /// Elements of the flat buffer, padding included; equal on all ranks of the tensor axis.
  int64_t elements() const { return elements_; }
  int64_t shard_elements() const { return elements_ / fsdp_count_; }
  /// Elements at the beginning of the buffer that are the same on all ranks of the tensor axis; a multiple of
  /// kGrain.
  int64_t replicated_elements() const { return replicated_elements_; }
  /// Elements at the beginning of the buffer that belong to vectors; a multiple of kGrain.
  int64_t vector_elements() const { return vector_elements_; }
  /// Index in the flat buffer of the first element of each tensor in unit().tensors.
  const std::vector<int64_t>& tensor_offsets() const { return tensor_offsets_; }
  /// This rank's slice of every logical parameter, in buffer order, without padding; a slice of padding alone
  /// is an empty box.
  const std::vector<Box>& slices() const { return slices_; }

  /// The logical elements in [begin, end) of the flat buffer, in order: at most three boxes a parameter.
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
void zero_padding(const UnitLayout& layout, int64_t begin, int64_t end, void* to, DType dtype);

/// The part that two boxes of one logical parameter have in common, or an empty box. Offset and stride count
/// in the buffer of `a`. Throws Error(kBug) if the boxes are of different parameters.
Box intersection(const Box& a, const Box& b);

}  // namespace ripstop
