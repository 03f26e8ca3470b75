// The parameter table: the names, sizes, cuts and initial values of a model's parameters. Allocation,
// initialisation, checkpoints, resharding and counts all follow from it.
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
  /// Every rank of the axis holds the whole parameter.
  kNone,
  /// Along dim 0: a rank computes some of the outputs (Megatron: column-parallel), or holds some rows of a
  /// vocabulary table.
  kRows,
  /// Along dim 1: a rank computes partial sums of all outputs (Megatron: row-parallel).
  kColumns,
};

/// A dim of `whole` elements is cut into `slices` equal slices. Returns the extent of each slice in memory: a
/// multiple of `grain`, or of 8 (for fast GEMM kernels) if grain is 1. The last slices may end in padding.
int64_t slice_extent(int64_t whole, int64_t slices, int64_t grain = 1);

/// The initial values of a parameter.
struct Initial {
  enum class Kind : uint8_t { kOnes, kZeros, kNormal, kUniform };
  Kind kind = Kind::kOnes;
  double size = 0;  ///< kNormal: the standard deviation; kUniform: values are between -size and size
};

/// A logical parameter, as in checkpoints: a matrix [rows, columns] or a vector [1, columns].
struct ParameterSpec {
  std::string name;  ///< Meta's: "layers.3.attention.wq.weight"
  int64_t rows = 0;
  int64_t columns = 0;
  bool vector = false;  ///< the weight of a norm; a matrix may have one row, too
  Cut cut = Cut::kNone;
  int64_t grain = 1;  ///< the tensor axis cuts at multiples of `grain`: D where heads must stay whole
  Initial initial = {};

  int64_t count() const { return rows * columns; }
  /// The rows and columns that each of `slices` ranks holds in memory, padding included. In the cut dim, the
  /// slice of rank i begins at logical row (or column) i * slice_rows (or i * slice_columns). Elements beyond
  /// the logical size are padding, which is zero and stays zero.
  int64_t slice_rows(int64_t slices) const {
    return cut == Cut::kRows ? slice_extent(rows, slices, grain) : rows;
  }
  int64_t slice_columns(int64_t slices) const {
    return cut == Cut::kColumns ? slice_extent(columns, slices, grain) : columns;
  }
};

/// A tensor that one GEMM reads: one logical parameter, or several whose slices lie one below the other in
/// memory (wq|wk|wv, w1|w3).
struct PhysicalTensor {
  std::vector<ParameterSpec> parts;  ///< all with the same columns and cut

  int64_t slice_rows(int64_t slices) const;
  int64_t slice_columns(int64_t slices) const { return parts.front().slice_columns(slices); }
  bool replicated() const { return parts.front().cut == Cut::kNone; }
};

/// Tensors that are gathered and released together. Tensors that the tensor axis does not cut come first.
struct UnitSpec {
  /// "embedding", "layers.3", "head"; "vocabulary" if embedding and head are tied; "layers.3.lora"
  std::string name;
  std::vector<PhysicalTensor> tensors;
  bool frozen = false;  ///< the weights never change: no gradient, no moments
};

/// All units of a model in forward order. If embeddings are tied, one unit "vocabulary" {norm, table} takes
/// the place of embedding and head, and comes first. The output projections (wo, w2) have the initial
/// deviation of the other matrices divided by sqrt(2 L).
std::vector<UnitSpec> parameter_table(const ModelConfig& config);

/// A physical tensor as layers use it. `value` (activation dtype) and `gradient` (float32) are views that the
/// unit sets while it is unsharded, otherwise "no tensor". Matrices are [slice_rows, slice_columns], vectors
/// [columns].
struct Parameter {
  Tensor value;
  Tensor gradient;
  Accumulate accumulate = Accumulate::kNo;  ///< whether this pass adds to `gradient` or overwrites it
};

}  // namespace ripstop
