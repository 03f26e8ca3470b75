#pragma once
#include "model/batch.h"
#include "model/ops/tensor_axis.h"
#include "model/parameter.h"

namespace ripstop {

/// Copies each token's row of the table. The tensor axis cuts the table by rows. A rank adds zeros for
/// a token whose row another rank holds, so the sum over the axis is the token's row. Source:
/// arXiv:1909.08053 section 3.
class Embedding {
 public:
  Parameter table;  ///< [V / t, C]; the head reads it too if embeddings are tied

  /// out [n, C] = this rank's local rows of table[token], with token [N].
  void forward(Context& context, const Tensor& token, const Tensor& out) const;

  /// Writes or adds the table's gradient, unless frozen, from dresidual [n, C].
  void backward(Context& context, const Batch& batch, const Tensor& dresidual) const;
};

}  // namespace ripstop
