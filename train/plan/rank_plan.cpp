#include "train/plan/rank_plan.h"

namespace ripstop {

RankPlan plan_rank(const PlanRequest& request, const MeshCoordinates& coordinates) {
  Device device = Device::meta(request.device);
  device.deterministic = request.deterministic;
  const Stream stream(device);
  MemoryLedger ledger;
  DeviceMesh mesh = DeviceMesh::planned(request.mesh, coordinates, request.device);
  TrainingStep step(request.model, request.step, mesh, stream, ledger);
  step.run(
      request.micro_batches, [](int64_t) { return HostTokens{}; }, 0.0, 1, [] { return false; });
  RankPlan plan;
  // Before the evaluation: its bytes are no part of a step.
  plan.traffic_per_step = mesh.bytes_sent();
  step.evaluate(
      1, [](int64_t) { return HostTokens{}; }, [] { return false; });
  plan.memory = ledger.peak();
  plan.arena = step.arena().peak();
  plan.memory += plan.arena;
  return plan;
}

RankPlan plan_fullest(const PlanRequest& request) {
  RankPlan fullest;
  // Replicas are equal: the replicate coordinate stays 0.
  for (const int64_t fsdp : {int64_t{0}, request.mesh.fsdp - 1})
    for (const int64_t tensor : {int64_t{0}, request.mesh.tensor - 1}) {
      const RankPlan plan = plan_rank(request, {.replicate = 0, .fsdp = fsdp, .tensor = tensor});
      if (plan.memory.total() > fullest.memory.total()) fullest = plan;
    }
  return fullest;
}

}  // namespace ripstop
