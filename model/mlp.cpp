#include "model/mlp.h"

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
  context.tensor.gather_sequence(context, saved.norm.normed, [&](const Tensor& rows, int64_t first) {
    linear(context, rows, w13.value, saved.gate_up.row_range(first, rows.rows()));
  });
  const Tensor hidden = context.arena.allocate(saved.gate_up.dtype, {saved.gate_up.rows(), slice_});
  swiglu(context, saved.gate_up, hidden);
  context.tensor.scatter_sum(context, residual.branch, [&](const Tensor& partial, int64_t first) {
    linear(context, hidden.row_range(first, partial.rows()), w2.value, partial);
  });
}

void Mlp::backward(Context& context, const Saved& saved, const Tensor& dresidual) const {
  const ProfilerRange range(context.device(), "mlp backward");
  Frame scratch(context.arena);
  const Tensor dnormed = context.arena.allocate(dresidual.dtype, dresidual.shape);
  const Tensor& dgate_up = saved.gate_up;
  {
    Frame inner(context.arena);
    const Tensor dhidden = context.arena.allocate(saved.gate_up.dtype, {saved.gate_up.rows(), slice_});
    const Tensor dbranch =
        context.tensor.gather_sequence(context, dresidual, [&](const Tensor& rows, int64_t first) {
          linear_backward_input(context, rows, w2.value, dhidden.row_range(first, rows.rows()));
        });
    swiglu_backward(context, saved.gate_up, dhidden);
    const Tensor& hidden = dhidden;
    linear_backward_weight(context, dbranch, hidden, w2.gradient, w2.accumulate);
  }
  context.tensor.scatter_sum(context, dnormed, [&](const Tensor& partial, int64_t first) {
    linear_backward_input(context, dgate_up.row_range(first, partial.rows()), w13.value, partial);
  });
  const Tensor normed =
      context.tensor.gather_sequence(context, saved.norm.normed, [](const Tensor&, int64_t) {});
  linear_backward_weight(context, dgate_up, normed, w13.gradient, w13.accumulate);
  absorb_backward(context, norm, saved.norm, dnormed, dresidual);
}

}  // namespace ripstop
