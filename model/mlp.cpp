#include "model/mlp.h"

#include "model/parallel_linear.h"

namespace ripstop {

Mlp::Mlp(const ModelConfig& config, int64_t tensor_count)
    : hidden_(config.hidden_size),
      slice_(slice_extent(config.intermediate_size, tensor_count)),
      epsilon_(config.rms_norm_eps) {}

Mlp::Saved Mlp::allocate(Context& context, int64_t rows, DType dtype) const {
  return {.norm = allocate_norm(context, context.tensor.local_rows(rows), hidden_, dtype),
          .gate_up = context.arena.allocate(dtype, {rows, 2 * slice_})};
}

void Mlp::forward(Context& context, Residual& residual, const Saved& saved) const {
  const ProfilerRange range(context.device(), "mlp forward");
  Frame scratch(context.arena);
  absorb(context, norm, epsilon_, residual, saved.norm);
  column_parallel_linear(context, saved.norm.normed, w13, saved.gate_up);
  const Tensor hidden = context.arena.allocate(saved.gate_up.dtype, {saved.gate_up.rows(), slice_});
  swiglu(context, saved.gate_up, hidden);
  row_parallel_linear(context, hidden, w2, residual.branch);
}

void Mlp::backward(Context& context, const Saved& saved, const Tensor& dresidual) const {
  const ProfilerRange range(context.device(), "mlp backward");
  Frame scratch(context.arena);
  const Tensor dnormed = context.arena.allocate(dresidual.dtype, dresidual.shape);
  const Tensor& dgate_up = saved.gate_up;
  {
    Frame inner(context.arena);
    const Tensor dhidden = context.arena.allocate(saved.gate_up.dtype, {saved.gate_up.rows(), slice_});
    const Tensor dbranch = row_parallel_linear_backward_input(context, dresidual, w2, dhidden);
    // Keeping silu(gate) * up from forward would take N * F / t elements a layer: swiglu_backward computes it
    // anew, in the place of its gradient, which it reads for the last time.
    swiglu_backward(context, saved.gate_up, dhidden);
    const Tensor& hidden = dhidden;
    linear_backward_weight(context, dbranch, hidden, w2.gradient, w2.accumulate);
  }
  column_parallel_linear_backward(context, dgate_up, saved.norm.normed, w13, dnormed);
  absorb_backward(context, norm, saved.norm, dnormed, dresidual);
}

}  // namespace ripstop
