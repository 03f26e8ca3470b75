#include "train/step/training_step.h"

#include <cmath>
#include <utility>

namespace ripstop {

TrainingStep::TrainingStep(const ModelConfig& config, const StepOptions& options, DeviceMesh& mesh,
                           const Stream& stream, MemoryLedger& ledger, const MemoryUse& arena_capacity)
    : options_(options),
      mesh_(mesh),
      stream_(stream),
      model_(config, mesh, stream, ledger, options.sharding),
      optimizer_(model_, options.adamw, stream.device(), ledger),
      batch_memory_(stream.device(), ledger, options.sharding.sequence_count,
                    options.sharding.sequence_length, model_.most_batches()),
      totals_(mesh, stream, ledger, options.data_sets),
      scale_memory_(stream.device(), ledger, MemoryCategory::kActivations, 8),
      arena_(stream.device(), ledger, arena_capacity, mesh.tensor().memory_source()),
      registration_(mesh.tensor().register_memory(arena_.data(), arena_.capacity_bytes())) {}

StepResult TrainingStep::run(int64_t micro_batches, NextTokens next, double learning_rate,
                             const StepNumbers& numbers, FunctionRef<bool()> stop_requested,
                             const StepHooks& hooks) {
  const Tensor scale = tensor_in(scale_memory_, 0, DType::kFloat32, {2});
  Context context = model_.context(arena_);
  totals_.clear();

  int64_t target_count = 0;
  const ShardingOptions& sharding = options_.sharding;
  const auto load = [&](int64_t micro) {
    Batch batch = batch_memory_.load(stream_, sharding.sequence_count, next(micro));
    // With D data ranks, sequence j of a step belongs to data rank j mod D.
    batch.place = {.seed = options_.adamw.seed,
                   .step = numbers.step,
                   .first_sequence = micro * sharding.sequence_count * mesh_.data_ranks() + mesh_.data_rank(),
                   .sequence_step = mesh_.data_ranks(),
                   .sequence_length = sharding.sequence_length};
    batch.set_loss = totals_.set_loss();
    target_count += batch.target_count;
    return batch;
  };
  const auto gives_up = [&](int64_t done) { return hooks.gives_up && hooks.gives_up(done); };
  if (!model_.run(arena_, {micro_batches, sharding.sequence_count * sharding.sequence_length, load, gives_up},
                  totals_.loss()))
    return {.given_up = true};
  const ProfilerRange range(stream_, "sums and update");
  model_.finish_gradients(arena_, totals_.squared_norm());
  totals_.sum_over_world(arena_, target_count, stop_requested(),
                         hooks.save_work ? hooks.save_work() : SaveWork::kNone);

  // The device computes scale = {clip / targets, 1}, or {0, 0} to skip the update, so the host queues the
  // update without waiting for the sums.
  gradient_scale(context, totals_.for_gradient_scale(), options_.max_grad_norm, scale);
  optimizer_.step(context, model_, learning_rate, numbers.update, scale, hooks.before_update);

  auto [sum, squared_norm, set_loss] = totals_.read();
  const auto count = static_cast<double>(sum.target_count);
  return {.loss = sum.mean(),
          .sum = sum,
          .set_loss = std::move(set_loss),
          // The gradients are of the loss summed over targets, the reported norm is of the mean loss.
          .gradient_norm = sum.target_count > 0 ? std::sqrt(squared_norm) / count : 0,
          .skipped = sum.target_count == 0 || !std::isfinite(sum.loss) || !std::isfinite(squared_norm)};
}

LossSum TrainingStep::evaluate(int64_t micro_batches, NextTokens next, FunctionRef<bool()> stop_requested) {
  return evaluate_batches(model_, micro_batches, next, batch_memory_, totals_, arena_, stop_requested);
}

}  // namespace ripstop
