#include "model/attention.h"

#include "model/parallel_linear.h"

namespace ripstop {
namespace {

Heads heads_of_slice(const ModelConfig& config, int64_t count) {
  check_tensor_axis(config, count);
  return {.query = config.num_attention_heads / count,
          .key_value = config.num_key_value_heads / count,
          .size = config.head_size()};
}

Documents documents_of(const Batch& batch) {
  return {batch.document_offset, batch.document_count, batch.longest_document};
}

}  // namespace

Attention::Attention(const ModelConfig& config, int64_t tensor_count)
    : hidden_(config.hidden_size),
      epsilon_(config.rms_norm_eps),
      heads_(heads_of_slice(config, tensor_count)),
      bias_(config.attention_bias),
      norms_heads_(config.qk_norm) {}

std::vector<Parameter*> Attention::more_vectors() {
  std::vector<Parameter*> vectors;
  if (norms_heads_) vectors.push_back(&head_norms);
  if (bias_ == AttentionBias::kQkvo) vectors.push_back(&bo);
  if (bias_ != AttentionBias::kNone) vectors.push_back(&bqkv);
  return vectors;
}

Attention::Saved Attention::allocate(Context& context, int64_t rows, DType dtype, Recompute recompute) const {
  const bool heads = recompute != Recompute::kFull, normed = recompute == Recompute::kNone;
  return {.norm = allocate_norm(context, context.tensor.local_rows(rows), hidden_, dtype, {.normed = normed}),
          .qkv = saved_tensor(context, heads, dtype, {rows, heads_.row()}),
          .out = saved_tensor(context, heads, dtype, {rows, heads_.query * heads_.size}),
          .log_sum_exp = saved_tensor(context, heads, DType::kFloat32, {rows, heads_.query}),
          .low = saved_tensor(context, heads, dtype, {rows, wqkv_adapters.width()})};
}

Attention::Saved Attention::with_memory(Context& context, const Saved& saved) {
  return {.norm = ripstop::with_memory(context, saved.norm),
          .qkv = ripstop::with_memory(context, saved.qkv),
          .out = ripstop::with_memory(context, saved.out),
          .log_sum_exp = ripstop::with_memory(context, saved.log_sum_exp),
          .low = ripstop::with_memory(context, saved.low)};
}

void Attention::forward(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
                        const Saved& saved, const CacheRows* store) const {
  const ProfilerRange range(context.stream, "attention forward");
  Frame scratch(context.arena);
  const Saved all = with_memory(context, saved);
  absorb(context, norm, epsilon_, residual, all.norm);
  attend(context, batch, angle, all, residual.branch, store);
}

void Attention::forward_again(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
                              const Saved& saved) const {
  const ProfilerRange range(context.stream, "attention forward again");
  Frame scratch(context.arena);
  norm_again(context, norm, epsilon_, saved.norm);
  residual.sum = saved.norm.sum;
  attend(context, batch, angle, saved, residual.branch, nullptr);
}

// Returns queries, keys and values as attention reads them. Without norms of heads, this is qkv, rotated in
// place; with norms of heads, whose backward needs qkv, a new tensor in the caller's arena frame.
Tensor Attention::turned(Context& context, const Tensor& position, const Tensor& angle,
                         const Tensor& qkv) const {
  Tensor to = qkv;
  if (norms_heads_) {
    to = context.arena.allocate(qkv.dtype, qkv.shape);
    norm_heads(context, qkv, head_norms.value, epsilon_, heads_, to);
  }
  rope(context, to, position, angle, heads_, Direction::kForward);
  return to;
}

// Writes saved.qkv and saved.low. Returns the result of turned().
Tensor Attention::project(Context& context, const Tensor& position, const Tensor& angle,
                          const Saved& saved) const {
  column_parallel_linear(context, saved.norm.normed, wqkv, wqkv_adapters, saved.low, saved.qkv);
  if (bias_ != AttentionBias::kNone) add_bias(context, bqkv.value, saved.qkv);
  return turned(context, position, angle, saved.qkv);
}

void Attention::add_output(Context& context, const Saved& saved, const Tensor& branch) const {
  row_parallel_linear(context, saved.out, wo, wo_adapters, branch);
  // Add the bias after the sum over the tensor axis, so that each row gets it once.
  if (bias_ == AttentionBias::kQkvo) add_bias(context, bo.value, branch);
}

void Attention::attend(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                       const Tensor& branch, const CacheRows* store) const {
  const Tensor qkv = project(context, batch.position, angle, saved);
  if (store != nullptr) store_key_value(context, qkv, store->slot, store->place, heads_, store->cache);
  attention(context, qkv, documents_of(batch), heads_, saved.out, saved.log_sum_exp);
  add_output(context, saved, branch);
}

void Attention::backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                         const Tensor& dresidual, InputGradient input) const {
  const ProfilerRange range(context.stream, "attention backward");
  RIPSTOP_CHECK(!saved.qkv.empty(), "attention backward before its forward ran again");
  Frame scratch(context.arena);
  const NormSaved normed = ripstop::with_memory(context, saved.norm);
  if (saved.norm.normed.empty()) norm_again(context, norm, epsilon_, normed);
  if (!bo.gradient.empty()) add_bias_backward(context, dresidual, bo.gradient, bo.accumulate);
  const bool to_input = input == InputGradient::kNeeded, to_qkv = to_input || wqkv_adapters.any();
  // dqkv and dnormed are used after the inner frame ends, so they are allocated before it begins.
  Tensor dqkv, dnormed;
  if (to_qkv) dqkv = context.arena.allocate(saved.qkv.dtype, saved.qkv.shape);
  if (to_input) dnormed = context.arena.allocate(dresidual.dtype, dresidual.shape);
  {
    Frame inner(context.arena);  // for dout and the gathered gradient
    Tensor dout;
    if (to_qkv) dout = context.arena.allocate(saved.out.dtype, saved.out.shape);
    const RowParallelGradient gradient =
        row_parallel_linear_backward_input(context, dresidual, wo, wo_adapters, dout);
    row_parallel_linear_backward_weight(context, gradient, saved.out, wo, wo_adapters);
    if (!to_qkv) return;
    const Tensor qkv = norms_heads_ ? turned(context, batch.position, angle, saved.qkv) : saved.qkv;
    attention_backward(context, dout, qkv, saved.out, saved.log_sum_exp, documents_of(batch), heads_, dqkv);
  }
  rope(context, dqkv, batch.position, angle, heads_, Direction::kBackward);
  if (norms_heads_)
    norm_heads_backward(context, saved.qkv, head_norms.value, epsilon_, heads_, dqkv, head_norms.gradient,
                        head_norms.accumulate);
  if (!bqkv.gradient.empty()) add_bias_backward(context, dqkv, bqkv.gradient, bqkv.accumulate);
  column_parallel_linear_backward(context, dqkv, normed.normed, wqkv, wqkv_adapters, saved.low, dnormed);
  if (to_input) absorb_backward(context, norm, normed, dnormed, dresidual);
}

void Attention::decode(Context& context, const CacheRows& rows, const Tensor& angle, Residual& residual,
                       const Saved& saved) const {
  const ProfilerRange range(context.stream, "attention decode");
  Frame scratch(context.arena);
  absorb(context, norm, epsilon_, residual, saved.norm);
  const Tensor qkv = project(context, rows.position, angle, saved);
  store_key_value(context, qkv, rows.slot, rows.place, heads_, rows.cache);
  attention_cached(context, qkv, rows.slot, rows.position, rows.cache, heads_, rows.tail, saved.out);
  add_output(context, saved, residual.branch);
}

}  // namespace ripstop
