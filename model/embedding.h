// Token embedding over this rank's slice of the vocabulary.
#pragma once
#include "model/batch.h"
#include "model/ops/tensor_axis.h"
#include "model/parameter.h"

namespace ripstop {

/// The first layer: looks up a row of the table for each token, which begins the residual stream. The table
/// is cut by rows over the tensor axis. A rank without a token's row gives zeros, so the sum over the axis is
/// the row. Source: arXiv:1909.08053 section 3.
class Embedding {
 public:
  Parameter table;  ///< [V / t, C]; the head reads it too if embeddings are tied

  /// out [n, C] = this rank's rows of table[token], with token [N].
  void forward(Context& context, const Tensor& token, const Tensor& out) const;

  /// Writes or adds the table's gradient from dresidual [n, C].
  void backward(Context& context, const Batch& batch, const Tensor& dresidual) const;
};

}  // namespace ripstop
