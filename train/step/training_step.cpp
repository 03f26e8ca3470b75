#include "train/step/training_step.h"

#include <array>
#include <cmath>

namespace ripstop {
namespace {

// Places in the packed vector that is summed over the world once a step.
enum Total : int64_t { kLoss = 0, kTargets = 1, kSquaredNorm = 2, kStopRequests = 3, kTotals = 4 };

using Totals = std::array<double, kTotals>;

}  // namespace

TrainingStep::TrainingStep(const ModelConfig& config, const StepOptions& options, DeviceMesh& mesh,
                           const Stream& stream, MemoryLedger& ledger, const MemoryUse& arena_capacity)
    : options_(options),
      mesh_(mesh),
      stream_(stream),
      model_(config, mesh, stream, ledger, options.sharding),
      optimizer_(model_, options.adamw, stream.device(), ledger),
      batch_memory_(stream.device(), ledger, options.sharding.sequence_count,
                    options.sharding.sequence_length),
      totals_memory_(stream.device(), ledger, MemoryCategory::kActivations, 8 * kTotals + 8),
      arena_(stream.device(), ledger, arena_capacity) {}

StepResult TrainingStep::run(int64_t micro_batches, NextTokens next, double learning_rate, int64_t step,
                             FunctionRef<bool()> stop_requested) {
  const Tensor totals = tensor_in(totals_memory_, 0, DType::kFloat64, {kTotals});
  const Tensor scale = tensor_in(totals_memory_, 8 * kTotals, DType::kFloat32, {2});
  Context context = model_.context(arena_);
  Totals host{};
  copy_bytes(stream_, totals.data, host.data(), totals.bytes());
  stream_.synchronize();

  model_.begin_step();
  double targets = 0;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    const ProfilerRange range(stream_.device(), fmt::format("step {} micro-batch {}", step, micro));
    const Batch batch = batch_memory_.load(stream_, options_.sharding.sequence_count, next(micro));
    targets += static_cast<double>(batch.target_count);
    model_.forward_backward(arena_, batch, micro + 1 == micro_batches, totals.row_range(kLoss, 1));
  }
  const ProfilerRange range(stream_.device(), fmt::format("step {} update", step));
  model_.finish_gradients(arena_, totals.row_range(kSquaredNorm, 1));

  // All ranks of a tensor group have counted the same loss and targets: one of them speaks.
  const bool speaks = mesh_.tensor().rank() == 0;
  const std::array<double, 2> own{speaks ? targets : 0.0, 0.0};
  copy_bytes(stream_, totals.row_range(kTargets, 1).data, own.data(), 8);
  if (!speaks) copy_bytes(stream_, totals.row_range(kLoss, 1).data, own.data() + 1, 8);
  const double stop = stop_requested() ? 1 : 0;
  copy_bytes(stream_, totals.row_range(kStopRequests, 1).data, &stop, 8);
  sum_over_world(totals);

  gradient_scale(context, totals.row_range(0, 3), options_.max_grad_norm, scale);
  optimizer_.step(context, model_, learning_rate, step, scale);

  copy_bytes(stream_, host.data(), totals.data, totals.bytes());
  stream_.synchronize();
  const double count = host[kTargets];
  return {.loss = count > 0 ? host[kLoss] / count : 0,
          .target_count = count,
          .gradient_norm = count > 0 ? std::sqrt(host[kSquaredNorm]) / count : 0,
          .skipped = !(count > 0) || !std::isfinite(host[kLoss]) || !std::isfinite(host[kSquaredNorm]),
          .stop_requests = host[kStopRequests]};
}

LossSum TrainingStep::evaluate(int64_t micro_batches, NextTokens next, FunctionRef<bool()> stop_requested) {
  const Tensor totals = tensor_in(totals_memory_, 0, DType::kFloat64, {kTotals});
  Totals host{};
  copy_bytes(stream_, totals.data, host.data(), totals.bytes());
  stream_.synchronize();
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    const Batch batch = batch_memory_.load(stream_, options_.sharding.sequence_count, next(micro));
    host[kTargets] += static_cast<double>(batch.target_count);
    model_.evaluate(arena_, batch, totals.row_range(kLoss, 1));
  }
  stream_.synchronize();
  const bool speaks = mesh_.tensor().rank() == 0;
  if (!speaks) host[kTargets] = 0;
  copy_bytes(stream_, totals.row_range(kTargets, 1).data, &host[kTargets], 8);
  const double nothing = 0, stop = stop_requested() ? 1 : 0;
  if (!speaks) copy_bytes(stream_, totals.row_range(kLoss, 1).data, &nothing, 8);
  copy_bytes(stream_, totals.row_range(kStopRequests, 1).data, &stop, 8);
  sum_over_world(totals);
  copy_bytes(stream_, host.data(), totals.data, totals.bytes());
  stream_.synchronize();
  return {.loss = host[kLoss], .target_count = host[kTargets], .stop_requests = host[kStopRequests]};
}

void TrainingStep::sum_over_world(const Tensor& totals) {
  Communicator& world = mesh_.world();
  if (world.size() == 1) return;
  Frame frame(arena_);
  const int64_t bytes = world.all_reduce_scratch_bytes(totals.count(), DType::kFloat64);
  const Tensor scratch = arena_.allocate(DType::kInt32, {(bytes + 3) / 4}, MemoryCategory::kCommunication);
  world.all_reduce(stream_, totals, Reduce::kSum, scratch);
}

}  // namespace ripstop
