// UnitLayout and Box: where a unit's elements lie, in memory and in the logical tensors. Pure arithmetic; all
// that initialisation, checkpoints, resharding and exchange need to know of the mesh.
#pragma once
#include <cstdint>
#include <vector>

#include "model/parameter.h"

namespace ripstop {

/// A rectangle of a logical tensor, and where its rows lie in a range of a unit's flat buffer.
struct Box {
  const ParameterSpec* parameter = nullptr;  ///< of the UnitSpec that the layout was made from
  int64_t row = 0, column = 0;               ///< first logical row and column
  int64_t rows = 0, columns = 0;
  int64_t offset = 0;  ///< element of the unit's flat buffer where the first row begins
  int64_t stride = 0;  ///< elements from one row to the next there

  bool empty() const { return rows == 0 || columns == 0; }
};

/// A slice of one logical parameter in a unit's flat buffer.
struct Placement {
  const ParameterSpec* parameter = nullptr;
  int64_t offset = 0;  ///< first element in the flat buffer
  int64_t rows = 0;    ///< of the slice in memory, padding included
  int64_t columns = 0;
  int64_t first_row = 0;  ///< of the slice in the logical tensor
  int64_t first_column = 0;
  int64_t valid_rows = 0;  ///< of the slice that are not padding; may be 0
  int64_t valid_columns = 0;
};

/// One unit's flat buffer on one rank of the tensor axis: physical tensors laid end to end, each beginning on
/// a multiple of 256 elements, replicated ones first, padded to fsdp * 256 elements. Rank i of the fsdp axis
/// keeps range i of `shard_elements()`. Refers to the UnitSpec it is made from, which must outlive it. Layout
/// version 1: checkpoints record the number, as files hold ranges of this buffer.
class UnitLayout {
 public:
  static constexpr int kVersion = 1;
  static constexpr int64_t kGrain = 256;

  UnitLayout(const UnitSpec& unit, int64_t tensor_count, int64_t tensor_index, int64_t fsdp_count);

  const UnitSpec& unit() const { return *unit_; }
  /// Elements of the whole flat buffer, padding included; equal on all ranks of the tensor axis.
  int64_t elements() const { return elements_; }
  int64_t shard_elements() const { return elements_ / fsdp_count_; }
  /// The leading elements that every rank of the tensor axis holds alike (a multiple of kGrain; 0 with none).
  int64_t replicated_elements() const { return replicated_elements_; }
  /// First element of each of unit().tensors.
  const std::vector<int64_t>& tensor_offsets() const { return tensor_offsets_; }
  /// Every logical parameter, in the order of the flat buffer.
  const std::vector<Placement>& placements() const { return placements_; }

  /// The logical elements in [begin, end) of the flat buffer, as at most three boxes a parameter, in order.
  /// Padding is in no box.
  std::vector<Box> boxes(int64_t begin, int64_t end) const;

 private:
  const UnitSpec* unit_;
  int64_t fsdp_count_;
  int64_t elements_ = 0;
  int64_t replicated_elements_ = 0;
  std::vector<int64_t> tensor_offsets_;
  std::vector<Placement> placements_;
};

/// The part that two boxes of the same logical tensor share, with the first one's offset and stride; empty
/// where they share nothing.
Box intersection(const Box& a, const Box& b);

}  // namespace ripstop
