#include "train/plan/snapshot_plan.h"

#include <algorithm>
#include <limits>

#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/snapshot.h"

namespace ripstop {
namespace {

// The page cache and other programs need the rest of the free host memory.
constexpr double kShareOfFree = 0.8;

int64_t room_for_copies(const RunConfig& config, const RunTarget& target, int64_t planned_bytes) {
  if (config.checkpoint.snapshot_mib) return *config.checkpoint.snapshot_mib << 20;
  int64_t room = std::numeric_limits<int64_t>::max();
  // On a CPU the plan and the copies share the memory.
  const int64_t taken = target.device == DeviceKind::kCpu ? planned_bytes : 0;
  if (target.host_memory_bytes)
    room = static_cast<int64_t>(kShareOfFree * static_cast<double>(*target.host_memory_bytes)) - taken;
  if (target.device == DeviceKind::kCpu && target.device_memory_bytes)
    room = std::min(room, *target.device_memory_bytes - taken);
  return std::max<int64_t>(room, 0);
}

}  // namespace

bool saves_while_training(const RunConfig& config) {
  const auto before_the_end = [&](int64_t every) {
    return every > 0 && (!config.train.steps || every < *config.train.steps);
  };
  return config.checkpoint.asynchronous &&
         (before_the_end(config.checkpoint.every_steps) ||
          (config.checkpoint.keep_best != KeepBest::kNone && before_the_end(config.train.validate_every)));
}

int64_t kept_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh, int64_t rank, DType moments,
                   int64_t most_bytes) {
  return snapshot_bytes(kept_shards(stored_shards(units, mesh, rank), moments, most_bytes), moments);
}

void limit_copies(SnapshotPlan& plan, const std::vector<UnitSpec>& units, const MeshSizes& mesh,
                  DType moments, int64_t most_bytes) {
  plan.most_bytes = most_bytes;
  plan.whole_bytes = plan.kept_bytes = 0;
  // Each replica saves some of the units of each stage; its ranks of tensor index 0 save the most bytes.
  for (int64_t replica = 0; replica < std::min<int64_t>(mesh.replicate, std::ssize(units)); ++replica)
    for (int64_t stage = 0; stage < mesh.pipeline; ++stage) {
      const int64_t rank = mesh.rank_of({.replicate = replica, .pipeline = stage});
      plan.whole_bytes =
          std::max(plan.whole_bytes, snapshot_bytes(stored_shards(units, mesh, rank), moments));
      plan.kept_bytes = std::max(plan.kept_bytes, kept_bytes(units, mesh, rank, moments, most_bytes));
    }
}

SnapshotPlan plan_snapshot(const RunConfig& config, const RunTarget& target,
                           const std::vector<UnitSpec>& units, const MeshSizes& mesh, DType moments,
                           int64_t planned_bytes) {
  SnapshotPlan plan;
  if (!saves_while_training(config)) return plan;
  plan.beside_device = target.device != DeviceKind::kCpu;
  plan.takes_the_rest = !config.checkpoint.snapshot_mib;
  limit_copies(plan, units, mesh, moments, room_for_copies(config, target, planned_bytes));
  return plan;
}

}  // namespace ripstop
