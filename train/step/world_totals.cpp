#include "train/step/world_totals.h"

namespace ripstop {
namespace {

// Places of the sums in memory. gradient_scale reads the first three.
enum Place : int64_t { kLoss, kTargets, kSquaredNorm, kStopRequests, kSavingRanks, kStillDisks, kPlaces };

}  // namespace

WorldTotals::WorldTotals(DeviceMesh& mesh, const Stream& stream, MemoryLedger& ledger, int64_t data_sets)
    : mesh_(mesh),
      stream_(stream),
      data_sets_(data_sets),
      memory_(stream.device(), ledger, MemoryCategory::kActivations, 8 * (kPlaces + data_sets)) {}

void WorldTotals::clear() {
  const std::vector<double> zeros(static_cast<size_t>(kPlaces + data_sets_));
  copy_bytes(stream_, memory_.data(), zeros.data(), memory_.bytes());
  stream_.synchronize();
}

Tensor WorldTotals::loss() const {
  return tensor_in(memory_, 8 * kLoss, DType::kFloat64, {1});
}

Tensor WorldTotals::squared_norm() const {
  return tensor_in(memory_, 8 * kSquaredNorm, DType::kFloat64, {1});
}

Tensor WorldTotals::set_loss() const {
  return data_sets_ == 0 ? Tensor{} : tensor_in(memory_, 8 * kPlaces, DType::kFloat64, {data_sets_});
}

Tensor WorldTotals::for_gradient_scale() const {
  return tensor_in(memory_, 8 * kLoss, DType::kFloat64, {3});
}

void WorldTotals::sum_over_world(Arena& arena, int64_t target_count, bool stop_requested,
                                 SaveWork save_work) {
  const Tensor totals = tensor_in(memory_, 0, DType::kFloat64, {kPlaces + data_sets_});
  const auto set = [&](Place place, double value) {
    copy_bytes(stream_, totals.row_range(place, 1).data, &value, 8);
  };
  // Only one rank of each tensor group of the last stage counts: its peers have the same loss and targets.
  const bool counts =
      mesh_.tensor().rank() == 0 && mesh_.coordinates().pipeline == mesh_.sizes().pipeline - 1;
  set(kTargets, counts ? static_cast<double>(target_count) : 0);
  if (!counts) set(kLoss, 0);
  for (int64_t i = 0; i < data_sets_ && !counts; ++i) set(static_cast<Place>(kPlaces + i), 0);
  set(kStopRequests, stop_requested ? 1 : 0);
  set(kSavingRanks, save_work == SaveWork::kNone ? 0 : 1);
  set(kStillDisks, save_work == SaveWork::kStands ? 1 : 0);

  Communicator& world = mesh_.world();
  if (world.size() == 1) return;
  Frame frame(arena);
  const int64_t bytes = world.all_reduce_scratch_bytes(totals.count(), DType::kFloat64);
  const Tensor scratch = arena.allocate(DType::kInt32, {(bytes + 3) / 4}, MemoryCategory::kCommunication);
  world.all_reduce(stream_, totals, scratch);
}

WorldTotals::Sums WorldTotals::read() const {
  std::vector<double> host(static_cast<size_t>(kPlaces + data_sets_));
  copy_bytes(stream_, host.data(), memory_.data(), memory_.bytes());
  stream_.synchronize();
  // float64 holds integers below 2^53 exactly.
  return {.loss = {.loss = host[kLoss],
                   .target_count = static_cast<int64_t>(host[kTargets]),
                   .stop_requests = static_cast<int64_t>(host[kStopRequests]),
                   .saving_ranks = static_cast<int64_t>(host[kSavingRanks]),
                   .still_disks = static_cast<int64_t>(host[kStillDisks])},
          .squared_norm = host[kSquaredNorm],
          .set_loss = {host.begin() + kPlaces, host.end()}};
}

LossSum evaluate_batches(ShardedTransformer& model, int64_t count, NextTokens next, BatchMemory& batch_memory,
                         WorldTotals& totals, Arena& arena, FunctionRef<bool()> stop_requested) {
  const Stream& stream = model.context(arena).stream;
  const ShardingOptions& options = model.options();
  totals.clear();
  int64_t target_count = 0;
  const auto load = [&](int64_t number) {
    Batch batch = batch_memory.load(stream, options.sequence_count, next(number));
    target_count += batch.target_count;
    return batch;
  };
  const int64_t rows = options.sequence_count * options.sequence_length;
  model.evaluate(arena, {count, rows, load, [](int64_t) { return false; }}, totals.loss());
  // stop_requested() is called after this wait, because a signal may come while the device computes.
  stream.synchronize();
  totals.sum_over_world(arena, target_count, stop_requested());
  return totals.read().loss;
}

}  // namespace ripstop
