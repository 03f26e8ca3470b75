// The one parameter table: what a model's parameters are called, how large they are, how the tensor axis cuts
// them, how they begin. Allocation, initialisation, checkpoints, resharding, exchange and counts all follow
// from it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/device/tensor.h"
#include "model/ops/ops.h"

namespace ripstop {

/// How the tensor axis divides a parameter.
enum class Cut : uint8_t {
  kNone,     ///< every rank of the axis holds all of it
  kRows,     ///< dim 0: a rank computes some outputs (column-parallel in Megatron's words) or holds some rows
             ///< of the vocabulary
  kColumns,  ///< dim 1: a rank computes partial sums of all outputs (row-parallel in Megatron's words)
};

/// Elements of a dim of `whole` elements that each of `slices` ranks holds in memory: equal shares on
/// multiples of `grain`; with grain 1, of eight elements, as GEMM kernels want, so the last slices may end in
/// padding.
int64_t slice_extent(int64_t whole, int64_t slices, int64_t grain = 1);

/// One logical parameter, as checkpoints and Hugging Face see it: a matrix [rows, columns], or a vector [1,
/// columns].
struct ParameterSpec {
  std::string name;  ///< Meta's: "layers.3.attention.wq.weight"
  int64_t rows = 0;
  int64_t columns = 0;
  Cut cut = Cut::kNone;
  int64_t grain = 1;  ///< cuts fall on multiples of it in the cut dim: D where heads must stay whole
  double initial_deviation = 0;  ///< standard deviation of the initial normal values; 0: all ones

  int64_t count() const { return rows * columns; }
  bool is_vector() const { return rows == 1; }
  /// Rows and columns that each of `slices` ranks holds in memory, padding included. A slice's first logical
  /// row (or column) is index * that extent; what lies beyond the logical size is padding, which is and
  /// stays zero.
  int64_t slice_rows(int64_t slices) const {
    return cut == Cut::kRows ? slice_extent(rows, slices, grain) : rows;
  }
  int64_t slice_columns(int64_t slices) const {
    return cut == Cut::kColumns ? slice_extent(columns, slices, grain) : columns;
  }
};

/// What one GEMM reads: logical parameters whose slices lie one below the other in memory (wq|wk|wv, w1|w3),
/// or one.
struct PhysicalTensor {
  std::vector<ParameterSpec> parts;  ///< equal columns and cut

  int64_t slice_rows(int64_t slices) const;
  int64_t slice_columns(int64_t slices) const { return parts.front().slice_columns(slices); }
  bool replicated() const { return parts.front().cut == Cut::kNone; }
};

/// What is gathered and released together. Replicated tensors (norms) come first.
struct UnitSpec {
  std::string name;  ///< "embedding", "layers.3", "head"; "vocabulary" where embedding and head are tied
  std::vector<PhysicalTensor> tensors;
};

/// All units in forward order. Tied: one unit "vocabulary" {norm, table} takes the place of embedding and
/// head, and comes first. Output projections (wo, w2) begin with their deviation divided by sqrt(2 L).
std::vector<UnitSpec> parameter_table(const ModelConfig& config);

/// A physical tensor as layers use it. `value` (activation dtype) and `gradient` (float32) are views that the
/// unit sets while it is unsharded, and "no tensor" otherwise. Matrices are [slice_rows, slice_columns],
/// vectors [columns].
struct Parameter {
  Tensor value;
  Tensor gradient;
  Accumulate accumulate = Accumulate::kNo;  ///< whether this pass adds to `gradient` or overwrites it
};

}  // namespace ripstop
