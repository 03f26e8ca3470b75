#include "train/plan/rank_plan.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ripstop {
namespace {

// Micro-batches that are walked. All between the first and the last are alike, so one of them stands for all:
// it finds the gradients of another one and leaves its own to the next.
constexpr int64_t kWalked = 3;

// The first and the last coordinate on an axis; once if they are one.
std::vector<int64_t> ends_of_axis(int64_t size) {
  return size > 1 ? std::vector<int64_t>{0, size - 1} : std::vector<int64_t>{0};
}

}  // namespace

RankPlan plan_rank(const PlanRequest& request, const MeshCoordinates& coordinates) {
  Device device = Device::meta(request.device);
  device.deterministic = request.deterministic;
  const Stream stream(device);
  MemoryLedger ledger;
  DeviceMesh mesh = DeviceMesh::planned(request.mesh, coordinates, request.device);
  TrainingStep step(request.model, request.step, mesh, stream, ledger);
  const int64_t walked = std::min(request.micro_batches, kWalked);
  std::array<AxisBytes, kWalked> sent_before;  // each micro-batch
  const auto walk = [&](int64_t micro_batches) {
    step.run(
        micro_batches,
        [&](int64_t micro) {
          sent_before[static_cast<size_t>(micro)] = mesh.bytes_sent();
          return HostTokens{};
        },
        0.0, {1}, [] { return false; });
  };
  // Frozen weights that stay whole are gathered in the first step of a run alone: that is no usual one.
  if (request.step.sharding.lora.any() && !request.step.sharding.reshard_after_forward) walk(1);
  walk(walked);
  RankPlan plan;
  // Before the evaluation: its bytes are no part of a step.
  const AxisBytes sent = mesh.bytes_sent();
  for (const MeshAxis axis : kMeshAxes)
    plan.traffic_per_step[axis] =
        sent[axis] - sent_before[0][axis] +
        (request.micro_batches - walked) * (sent_before[2][axis] - sent_before[1][axis]);
  plan.step_arena = step.arena().peak();
  step.arena().forget_peak();
  if (request.validates)
    step.evaluate(
        1, [](int64_t) { return HostTokens{}; }, [] { return false; });
  plan.evaluation_arena = step.arena().peak();
  plan.arena =
      plan.step_arena.total() >= plan.evaluation_arena.total() ? plan.step_arena : plan.evaluation_arena;
  plan.memory = ledger.peak();
  plan.memory += plan.arena;
  return plan;
}

RankPlan plan_fullest(const PlanRequest& request) {
  RankPlan fullest;
  // Replicas are equal: the replicate coordinate stays 0.
  for (const int64_t fsdp : ends_of_axis(request.mesh.fsdp))
    for (const int64_t tensor : ends_of_axis(request.mesh.tensor)) {
      const RankPlan plan = plan_rank(request, {.fsdp = fsdp, .tensor = tensor});
      if (plan.memory.total() > fullest.memory.total()) fullest = plan;
    }
  return fullest;
}

}  // namespace ripstop
