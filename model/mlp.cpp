#include "model/mlp.h"

#include "model/parallel_linear.h"

namespace ripstop {

Mlp::Mlp(const ModelConfig& config, int64_t tensor_count)
    : hidden_(config.hidden_size),
      slice_(slice_extent(config.intermediate_size, tensor_count)),
      epsilon_(config.rms_norm_eps) {}

Mlp::Saved Mlp::allocate(Context& context, int64_t rows, DType dtype, Recompute recompute) const {
  const bool all = recompute == Recompute::kNone;
  return {.norm = allocate_norm(context, context.tensor.local_rows(rows), hidden_, dtype,
                                {.sum = recompute != Recompute::kFull, .normed = all}),
          .gate_up = saved_tensor(context, all, dtype, {rows, 2 * slice_}),
          .low = saved_tensor(context, all, dtype, {rows, w13_adapters.width()})};
}

void Mlp::forward(Context& context, Residual& residual, const Saved& saved) const {
  const ProfilerRange range(context.stream, "mlp forward");
  Frame scratch(context.arena);
  NormSaved normed = saved.norm;
  if (normed.sum.empty()) normed.sum = residual.shared_sum;
  normed = with_memory(context, normed);
  const Tensor gate_up = with_memory(context, saved.gate_up), low = with_memory(context, saved.low);
  absorb(context, norm, epsilon_, residual, normed);
  column_parallel_linear(context, normed.normed, w13, w13_adapters, low, gate_up);
  const Tensor hidden = context.arena.allocate(gate_up.dtype, {gate_up.rows(), slice_});
  swiglu(context, gate_up, hidden);
  row_parallel_linear(context, hidden, w2, w2_adapters, residual.branch);
}

void Mlp::backward(Context& context, const Saved& saved, const Tensor& dresidual, InputGradient input) const {
  const ProfilerRange range(context.stream, "mlp backward");
  RIPSTOP_CHECK(!saved.norm.sum.empty(), "feed-forward backward before its sum was computed again");
  Frame scratch(context.arena);
  const NormSaved normed = with_memory(context, saved.norm);
  const Tensor gate_up = with_memory(context, saved.gate_up), low = with_memory(context, saved.low);
  Tensor gathered;  // all ranks' rows of the norm, gathered once for both products
  if (saved.norm.normed.empty()) norm_again(context, norm, epsilon_, normed);
  if (saved.gate_up.empty())
    gathered = column_parallel_linear(context, normed.normed, w13, w13_adapters, low, gate_up);
  const bool to_input = input == InputGradient::kNeeded, to_gate_up = to_input || w13_adapters.any();
  Tensor dnormed;
  if (to_input) dnormed = context.arena.allocate(dresidual.dtype, dresidual.shape);
  const Tensor& dgate_up = gate_up;
  {
    Frame inner(context.arena);
    const Tensor dhidden = context.arena.allocate(gate_up.dtype, {gate_up.rows(), slice_});
    const Tensor& hidden = dhidden;
    const RowParallelGradient gradient = row_parallel_linear_backward_input(
        context, dresidual, w2, w2_adapters, to_gate_up ? dhidden : Tensor{});
    // Forward does not keep `hidden`, which has N * F / t elements a layer. Both calls compute it again, in
    // the memory of dhidden.
    if (to_gate_up) {
      swiglu_backward(context, gate_up, dhidden);
    } else {
      swiglu(context, gate_up, hidden);
    }
    row_parallel_linear_backward_weight(context, gradient, hidden, w2, w2_adapters);
  }
  if (to_gate_up)
    column_parallel_linear_backward(context, dgate_up, normed.normed, w13, w13_adapters, low, dnormed,
                                    gathered);
  if (to_input) absorb_backward(context, norm, normed, dnormed, dresidual);
}

}  // namespace ripstop
