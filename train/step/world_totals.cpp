#include "train/step/world_totals.h"

#include <array>

namespace ripstop {
namespace {

// Places of the sums in memory. gradient_scale reads the first three.
enum Place : int64_t { kLoss, kTargets, kSquaredNorm, kStopRequests, kSavingRanks, kStillDisks, kPlaces };

}  // namespace

WorldTotals::WorldTotals(DeviceMesh& mesh, const Stream& stream, MemoryLedger& ledger)
    : mesh_(mesh),
      stream_(stream),
      memory_(stream.device(), ledger, MemoryCategory::kActivations, 8 * kPlaces) {}

void WorldTotals::clear() {
  const std::array<double, kPlaces> zeros{};
  copy_bytes(stream_, memory_.data(), zeros.data(), memory_.bytes());
  stream_.synchronize();
}

Tensor WorldTotals::loss() const {
  return tensor_in(memory_, 8 * kLoss, DType::kFloat64, {1});
}

Tensor WorldTotals::squared_norm() const {
  return tensor_in(memory_, 8 * kSquaredNorm, DType::kFloat64, {1});
}

Tensor WorldTotals::for_gradient_scale() const {
  return tensor_in(memory_, 8 * kLoss, DType::kFloat64, {3});
}

void WorldTotals::sum_over_world(Arena& arena, int64_t target_count, bool stop_requested,
                                 SaveWork save_work) {
  const Tensor totals = tensor_in(memory_, 0, DType::kFloat64, {kPlaces});
  const auto set = [&](Place place, double value) {
    copy_bytes(stream_, totals.row_range(place, 1).data, &value, 8);
  };
  // All ranks of a tensor group have the same targets and loss, so only the group's first rank adds them.
  const bool counts = mesh_.tensor().rank() == 0;
  set(kTargets, counts ? static_cast<double>(target_count) : 0);
  if (!counts) set(kLoss, 0);
  set(kStopRequests, stop_requested ? 1 : 0);
  set(kSavingRanks, save_work == SaveWork::kNone ? 0 : 1);
  set(kStillDisks, save_work == SaveWork::kStands ? 1 : 0);

  Communicator& world = mesh_.world();
  if (world.size() == 1) return;
  Frame frame(arena);
  const int64_t bytes = world.all_reduce_scratch_bytes(totals.count(), DType::kFloat64);
  const Tensor scratch = arena.allocate(DType::kInt32, {(bytes + 3) / 4}, MemoryCategory::kCommunication);
  world.all_reduce(stream_, totals, Reduce::kSum, scratch);
}

WorldTotals::Sums WorldTotals::read() const {
  std::array<double, kPlaces> host{};
  copy_bytes(stream_, host.data(), memory_.data(), memory_.bytes());
  stream_.synchronize();
  // float64 holds integers below 2^53 exactly.
  return {.loss = {.loss = host[kLoss],
                   .target_count = static_cast<int64_t>(host[kTargets]),
                   .stop_requests = static_cast<int64_t>(host[kStopRequests]),
                   .saving_ranks = static_cast<int64_t>(host[kSavingRanks]),
                   .still_disks = static_cast<int64_t>(host[kStillDisks])},
          .squared_norm = host[kSquaredNorm]};
}

LossSum evaluate_batches(ShardedTransformer& model, const HostBatches& batches, BatchMemory& batch_memory,
                         WorldTotals& totals, Arena& arena, FunctionRef<bool()> stop_requested) {
  const Stream& stream = model.context(arena).stream;
  totals.clear();
  int64_t target_count = 0;
  for (int64_t number = 0; number < batches.count; ++number) {
    const Batch batch = batch_memory.load(stream, batches.sequence_count, batches.next(number));
    target_count += batch.target_count;
    model.evaluate(arena, batch, totals.loss());
  }
  // stop_requested() is called after this wait, because a signal may come while the device computes.
  stream.synchronize();
  totals.sum_over_world(arena, target_count, stop_requested());
  return totals.read().loss;
}

}  // namespace ripstop
