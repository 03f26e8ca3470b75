#pragma once
#include "model/adapters.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// branch = (silu(x w1^T) * x w3^T) w2^T, summed over the ranks of the tensor axis, with x = norm(residual).
///
/// w1|w3 is column-parallel and w2 row-parallel (see parallel_linear.h). Unless 8 divides F / t, rows of
/// w1|w3 and columns of w2 are padded with zeros, which stay zero: silu(0) * 0 = 0. Source: SwiGLU,
/// arXiv:2002.05202; the cut, arXiv:1909.08053 section 3.
class Mlp {
 public:
  /// Tensors of forward that backward needs. Forward fills only tensors that have memory.
  struct Saved {
    NormSaved norm;
    Tensor gate_up;  ///< [N, 2F / t]; backward overwrites it with its gradient
    Tensor low;      ///< [N, k r], low rows of w13's adapters; kept if gate_up is kept
  };

  Mlp(const ModelConfig& config, int64_t tensor_count);

  Parameter norm;  ///< [C]
  Parameter w13;   ///< [2F / t, C]: w1 (gate) above w3 (up)
  Parameter w2;    ///< [C, F / t]
  Adapters w13_adapters, w2_adapters;

  /// Allocates, in the caller's arena frame, the tensors that forward keeps.
  Saved allocate(Context& context, int64_t rows, DType dtype, Recompute recompute = Recompute::kNone) const;

  /// Writes residual.sum + residual.branch to saved.norm.sum or, if this has no memory, to
  /// residual.shared_sum; residual.sum then views it. Overwrites residual.branch with this layer's branch.
  void forward(Context& context, Residual& residual, const Saved& saved) const;

  /// Does only the first operation of forward: adds residual.branch to residual.sum and writes saved.norm.
  void absorb_again(Context& context, Residual& residual, const Saved& saved) const {
    absorb(context, norm, epsilon_, residual, saved.norm);
  }

  /// On entry, dresidual [n, C] is the gradient of the loss w.r.t. residual.sum + residual.branch after this
  /// layer; on return, w.r.t. the layer's input. With InputGradient::kNot, dresidual does not change. Writes
  /// or adds the gradients of the weights that are not frozen. Computes again the tensors of `saved` that
  /// have no memory, and may overwrite gate_up; saved.norm.sum must have memory.
  void backward(Context& context, const Saved& saved, const Tensor& dresidual,
                InputGradient input = InputGradient::kNeeded) const;

 private:
  int64_t hidden_;
  int64_t slice_;  ///< F / t, padding included
  double epsilon_;
};

}  // namespace ripstop
