#include "model/head_loss.h"

#include <algorithm>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

// The ids of slice `index` of `count`. The last slices may end in padding, or be padding alone.
VocabularySlice slice_of(const ModelConfig& config, int64_t count, int64_t index) {
  const int64_t rows = slice_extent(config.vocab_size, count);
  const int64_t first = std::min(index * rows, config.vocab_size);
  return {.first = first, .valid = std::min(rows, config.vocab_size - first)};
}

}  // namespace

HeadLoss::HeadLoss(const ModelConfig& config, int64_t tensor_count, int64_t tensor_index)
    : hidden_(config.hidden_size),
      epsilon_(config.rms_norm_eps),
      slice_(slice_of(config, tensor_count, tensor_index)) {}

void HeadLoss::forward_backward(Context& context, const Batch& batch, const Parameter& weights,
                                Residual& residual, const Saved& saved, const Tensor& total,
                                const Tensor& dresidual) const {
  const ProfilerRange range(context.stream, "head forward and backward");
  Frame scratch(context.arena);
  absorb(context, norm, epsilon_, residual, saved);
  const Tensor normed = gather_sequence(context, saved.normed);
  const Tensor dnormed = context.arena.allocate(dresidual.dtype, dresidual.shape);
  const auto produce = [&](const Tensor& partial, int64_t) {
    // Chunks write only rows with a target, but the sum over the axis reads all rows.
    fill_zero(context, partial);
    add_losses(context, batch, weights, normed, total, partial);
  };
  // Without a target no chunk overwrites the gradient, whose memory may hold old numbers.
  if (batch.target_count == 0 && weights.accumulate == Accumulate::kNo && !weights.gradient.empty())
    fill_zero(context, weights.gradient);
  context.tensor.scatter_sum(context, dnormed, produce, TensorAxis::Parts::kWhole);
  fill_zero(context, dresidual);
  absorb_backward(context, norm, saved, dnormed, dresidual);
}

void HeadLoss::forward(Context& context, const Batch& batch, const Parameter& weights, Residual& residual,
                       const Saved& saved, const Tensor& total) const {
  const ProfilerRange range(context.stream, "head forward");
  Frame scratch(context.arena);
  absorb(context, norm, epsilon_, residual, saved);
  const Tensor normed = gather_sequence(context, saved.normed);
  add_losses(context, batch, weights, normed, total, Tensor{});
}

void HeadLoss::add_losses(Context& context, const Batch& batch, const Parameter& weights,
                          const Tensor& normed, const Tensor& total, const Tensor& dnormed) const {
  // Runs empty chunks, too, because a plan does not know how many rows have a target, and the run must
  // exchange as many bytes as the plan counts.
  for (int64_t first = 0; first < batch.rows(); first += chunk_rows)
    chunk_loss(context, batch, weights, normed,
               {first, std::clamp<int64_t>(batch.target_count - first, 0, chunk_rows)}, total, dnormed);
}

void HeadLoss::chunk_loss(Context& context, const Batch& batch, const Parameter& weights,
                          const Tensor& normed, Chunk chunk, const Tensor& total,
                          const Tensor& dnormed) const {
  Frame scratch(context.arena);
  Arena& arena = context.arena;
  const int64_t capacity = std::min(chunk_rows, batch.rows()), columns = weights.value.rows();
  const bool train = !dnormed.empty(), convert_gradient = train && normed.dtype != DType::kFloat32;
  // Ranks exchange a full chunk of statistics, since a plan does not know how many rows have a target.
  const Tensor statistics = arena.allocate(DType::kFloat32, {capacity, 3});
  const Tensor all = arena.allocate(DType::kFloat32, {context.tensor.count(), capacity, 3});
  const Tensor loss = arena.allocate(DType::kFloat32, {capacity}).row_range(0, chunk.rows);
  const Tensor x = arena.allocate(normed.dtype, {capacity, hidden_});
  const Tensor logits = arena.allocate(DType::kFloat32, {capacity, columns});
  const Tensor dlogits = convert_gradient ? arena.allocate(normed.dtype, {capacity, columns}) : logits;
  // Fewer rows may need more workspace, and a plan does not know the number of rows, so reserve for each
  // possible number. Only the first chunk does this, since all chunks allocate equal amounts.
  for (int64_t rows = chunk.first == 0 ? capacity : 0; rows > 0;
       rows -= rows % row_step() > 0 ? rows % row_step() : row_step()) {
    reserve_linear(context, x.row_range(0, rows), weights.value, logits.row_range(0, rows));
    if (train)
      reserve_linear_backward(context, dlogits.row_range(0, rows), x.row_range(0, rows), weights.value,
                              x.row_range(0, rows), weights.gradient);
  }
  const Tensor row = batch.target_row.row_range(chunk.first, chunk.rows);
  const Tensor target = batch.target.row_range(chunk.first, chunk.rows);
  const int64_t padded = std::min(round_up(chunk.rows, row_step()), capacity);
  const auto used = [&](const Tensor& t) { return t.row_range(0, chunk.rows); };
  const auto multiplied = [&](const Tensor& t) { return t.row_range(0, padded); };
  const auto clear_padding = [&](const Tensor& t) {
    fill_zero(context, t.row_range(chunk.rows, padded - chunk.rows));
  };

  if (chunk.rows > 0) {
    gather_rows(context, normed, row, used(x));
    clear_padding(x);
    linear(context, multiplied(x), weights.value, multiplied(logits));
    cross_entropy_statistics(context, used(logits), target, slice_, used(statistics));
  }
  context.tensor.gather(context, statistics, all);  // for an empty chunk, too: see add_losses()
  if (chunk.rows == 0) return;
  cross_entropy(context, used(logits), target, all, slice_, loss, train ? used(dlogits) : Tensor{});
  add_sum(context, loss, total);
  for (const auto& [set, begin, end] : batch.set_targets) {
    const int64_t first = std::max(begin - chunk.first, int64_t{0}),
                  last = std::min(end - chunk.first, chunk.rows);
    if (batch.set_loss.empty() || first >= last) continue;
    add_sum(context, loss.row_range(first, last - first), batch.set_loss.row_range(set, 1));
  }
  if (!train) return;
  const Accumulate accumulate = chunk.first == 0 ? weights.accumulate : Accumulate::kYes;
  clear_padding(dlogits);
  if (!weights.gradient.empty())
    linear_backward_weight(context, multiplied(dlogits), multiplied(x), weights.gradient, accumulate);
  const Tensor& dx = x;  // dx overwrites x, which is not read again
  linear_backward_input(context, multiplied(dlogits), weights.value, multiplied(dx));
  scatter_rows(context, used(dx), row, dnormed);
}

void HeadLoss::logits(Context& context, const Parameter& weights, Residual& residual, const Saved& saved,
                      const Tensor& row, const Tensor& logits) const {
  Frame scratch(context.arena);
  absorb(context, norm, epsilon_, residual, saved);
  const Tensor normed = gather_sequence(context, saved.normed);
  // `row` is null in a decode step, which scores all rows.
  if (row.empty()) {
    linear(context, normed, weights.value, logits);
    return;
  }
  const Tensor x = context.arena.allocate(normed.dtype, {row.count(), hidden_});
  gather_rows(context, normed, row, x);
  linear(context, x, weights.value, logits);
}

void HeadLoss::predict(Context& context, const Parameter& weights, Residual& residual, const Saved& saved,
                       const Tensor& row, const NextTokenScores& scores) const {
  const ProfilerRange range(context.stream, "head forward");
  if (!scores.logits.empty()) {
    gather_logits(context, weights, residual, saved, row, scores);
    return;
  }
  Frame scratch(context.arena);
  const int64_t rows = row.empty() ? saved.normed.rows() : row.count();
  const Tensor own = context.arena.allocate(DType::kFloat32, {rows, weights.value.rows()});
  logits(context, weights, residual, saved, row, own);
  const Tensor own_value = context.arena.allocate(DType::kFloat32, {rows});
  const Tensor own_id = context.arena.allocate(DType::kInt32, {rows});
  const VocabularySlice allowed{.first = slice_.first,
                                .valid = std::clamp<int64_t>(scores.ids - slice_.first, 0, slice_.valid)};
  argmax_rows(context, own, allowed, own_value, own_id);
  context.tensor.gather(context, own_value, scores.value);
  context.tensor.gather(context, own_id, scores.id);
}

void HeadLoss::gather_logits(Context& context, const Parameter& weights, Residual& residual,
                             const Saved& saved, const Tensor& row, const NextTokenScores& scores) const {
  Frame scratch(context.arena);
  const int64_t rows = scores.logits.shape[1], columns = weights.value.rows(), index = context.tensor.index();
  // This rank's logits are written directly to their place in the gathered tensors, without a copy.
  const Tensor own = scores.logits.row_range(index, 1).viewed({rows, columns});
  const Tensor own_statistics = scores.statistics.row_range(index, 1).viewed({rows, 3});
  logits(context, weights, residual, saved, row, own);
  const Tensor target = context.arena.allocate(DType::kInt32, {rows});
  fill_zero(context, target);
  cross_entropy_statistics(context, own, target, slice_, own_statistics);
  context.tensor.gather(context, own, scores.logits);
  context.tensor.gather(context, own_statistics, scores.statistics);
}

}  // namespace ripstop
