// The parameter table: names, sizes, cuts and initial values of a model's parameters.
#pragma once
#include <cstdint>
#include <ranges>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/device/tensor.h"
#include "model/ops/ops.h"

namespace ripstop {

enum class Cut : uint8_t {
  /// Every rank of the axis holds the whole parameter.
  kNone,
  /// Along dim 0: a rank computes some of the outputs, or holds some rows of a vocabulary table.
  kRows,
  /// Along dim 1: a rank computes partial sums of all outputs.
  kColumns,
};

/// The extent in memory of each slice, if a dim of `whole` elements is cut into `slices` equal slices: a
/// multiple of `grain`, or of 8 (for fast GEMM kernels) if grain is 1. The last slices may end in padding.
int64_t slice_extent(int64_t whole, int64_t slices, int64_t grain = 1);

struct Initial {
  enum class Kind : uint8_t { kOnes, kZeros, kNormal, kUniform };
  Kind kind = Kind::kOnes;
  double size = 0;  ///< kNormal: the standard deviation; kUniform: values are between -size and size
};

/// A logical parameter, as in checkpoints: a matrix [rows, columns] or a vector [rows, 1].
struct ParameterSpec {
  std::string name;  ///< such as "layers.3.attention.wq.weight" (Meta's style)
  int64_t rows = 0;
  int64_t columns = 0;
  bool vector = false;  ///< the weight of a norm, or a bias; false for a matrix of one column
  Cut cut = Cut::kNone;
  int64_t grain = 1;  ///< the tensor axis cuts at multiples of `grain`: D where heads must stay whole
  Initial initial = {};

  int64_t count() const { return rows * columns; }
  /// The rows and columns that each of `slices` ranks holds in memory. In the cut dim, the slice of rank i
  /// begins at logical row i * slice_rows (column i * slice_columns). Elements beyond the logical size are
  /// padding, which stays zero.
  int64_t slice_rows(int64_t slices) const {
    return cut == Cut::kRows ? slice_extent(rows, slices, grain) : rows;
  }
  int64_t slice_columns(int64_t slices) const {
    return cut == Cut::kColumns ? slice_extent(columns, slices, grain) : columns;
  }
};

/// A tensor that one kernel reads: one parameter, or several below each other in memory (wq|wk|wv, w1|w3).
struct PhysicalTensor {
  std::vector<ParameterSpec> parts;  ///< all with equal `columns` and equal `cut`

  int64_t slice_rows(int64_t slices) const;
  int64_t slice_columns(int64_t slices) const { return parts.front().slice_columns(slices); }
  bool replicated() const { return parts.front().cut == Cut::kNone; }
};

/// Tensors that are gathered and released together. Vectors come before matrices, and tensors that the tensor
/// axis does not cut before tensors that it cuts.
struct UnitSpec {
  /// "embedding", "layers.3", "layers.3.lora" or "head"; "vocabulary" if embedding and head are tied
  std::string name;
  std::vector<PhysicalTensor> tensors;
  bool frozen = false;  ///< the weights never change and have no gradient and no moments
  int64_t stage = 0;    ///< the rank of a pipeline that stores the unit in checkpoints

  /// The parameters of all tensors.
  auto parameters() const {
    return tensors | std::views::transform(&PhysicalTensor::parts) | std::views::join;
  }
  /// The number of tensors that are vectors, which is also the index of the first matrix.
  size_t vectors() const;
};

/// All units of a model in forward order. If embeddings are tied, one unit "vocabulary" {norm, table}
/// replaces embedding and head, and comes first.
std::vector<UnitSpec> parameter_table(const ModelConfig& config);

/// A physical tensor as layers use it: a matrix [slice_rows, slice_columns] or a vector [slice_rows]. `value`
/// (activation dtype) is null if the unit is not gathered, `gradient` (float32) outside of the unit's
/// backward or if it is frozen.
struct Parameter {
  Tensor value;
  Tensor gradient;
  Accumulate accumulate = Accumulate::kNo;  ///< whether this pass adds to `gradient` or overwrites it
};

}  // namespace ripstop
