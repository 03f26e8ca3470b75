// SwiGLU feed-forward over this rank's slice of F, with the norm before it.
#pragma once
#include "model/adapters.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// branch = sum over slices of (silu(x w1^T) * x w3^T) w2^T with x = norm(residual).
///
/// w1|w3 is column-parallel and w2 row-parallel over the tensor axis (see parallel_linear.h). If t does not
/// divide F, zero rows and columns pad the slices. They stay zero: silu(0) * 0 = 0, forward and backward.
/// Source: SwiGLU, arXiv:2002.05202; the cut, arXiv:1909.08053 section 3.
class Mlp {
 public:
  /// The tensors that backward needs and overwrites. Forward keeps the tensors with memory.
  struct Saved {
    NormSaved norm;
    Tensor gate_up;  ///< [N, 2F / t]; backward turns it into its gradient
    Tensor low;      ///< [N, k r], of w13's adapters; kept if gate_up is
  };

  Mlp(const ModelConfig& config, int64_t tensor_count);

  Parameter norm;  ///< [C]
  Parameter w13;   ///< [2F / t, C]: w1 (gate) above w3 (up)
  Parameter w2;    ///< [C, F / t]
  Adapters w13_adapters, w2_adapters;

  /// Makes Saved for N rows; the tensors that forward keeps are in the caller's arena frame.
  Saved allocate(Context& context, int64_t rows, DType dtype, Recompute recompute = Recompute::kNone) const;

  /// Adds the residual's branch to its sum and leaves this layer's branch in its place. If saved.norm.sum is
  /// not kept, the sum is in residual.shared_sum.
  void forward(Context& context, Residual& residual, const Saved& saved) const;

  /// The first operation of forward alone: adds the residual's branch to its sum and writes saved.norm.
  void absorb_again(Context& context, Residual& residual, const Saved& saved) const;

  /// Turns dresidual [n, C] in place into the gradient by this layer's input, or leaves it as it is with
  /// InputGradient::kNot. Writes or adds the gradients of the weights that are not frozen. Overwrites
  /// `saved`, and computes its tensors without memory again; saved.norm.sum must have memory.
  void backward(Context& context, const Saved& saved, const Tensor& dresidual,
                InputGradient input = InputGradient::kNeeded) const;

 private:
  int64_t hidden_;
  int64_t slice_;  ///< F / t, padding included
  double epsilon_;
};

}  // namespace ripstop
