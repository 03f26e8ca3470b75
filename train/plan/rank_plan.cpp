#include "train/plan/rank_plan.h"

#include <algorithm>
#include <set>

namespace ripstop {
namespace {

std::vector<int64_t> ends_of_axis(int64_t size) {
  return size > 1 ? std::vector<int64_t>{0, size - 1} : std::vector<int64_t>{0};
}

// The plan of the fullest rank at index `pipeline` of the pipeline axis.
RankPlan plan_stages_of(const PlanRequest& request, int64_t pipeline) {
  RankPlan fullest;
  for (const int64_t fsdp : ends_of_axis(request.mesh.fsdp))
    for (const int64_t tensor : ends_of_axis(request.mesh.tensor)) {
      const RankPlan plan = plan_rank(request, {.fsdp = fsdp, .tensor = tensor, .pipeline = pipeline});
      if (plan.memory.total() > fullest.memory.total()) fullest = plan;
    }
  return fullest;
}

}  // namespace

int64_t walked_micro_batches(const MeshSizes& mesh, int64_t micro_batches) {
  const int64_t few = 3 * mesh.pipeline;
  return micro_batches <= few ? micro_batches : few + micro_batches % mesh.pipeline;
}

Device planned_device(const PlanRequest& request) {
  Device device = Device::meta(request.device);
  device.deterministic = request.deterministic;
  return device;
}

RankPlan plan_rank(const PlanRequest& request, const MeshCoordinates& coordinates) {
  const Stream stream(planned_device(request));
  MemoryLedger ledger;
  DeviceMesh mesh =
      DeviceMesh::planned(request.mesh, coordinates, request.device, request.step.sharding.stages_per_rank);
  TrainingStep step(request.model, request.step, mesh, stream, ledger);
  const int64_t period = request.mesh.pipeline;
  const int64_t walked = walked_micro_batches(request.mesh, request.micro_batches);
  const int64_t more = (request.micro_batches - walked) / period;
  std::vector<AxisBytes> sent_before(static_cast<size_t>(walked));  // bytes sent before each micro-batch
  const auto walk = [&](int64_t micro_batches) {
    step.run(
        micro_batches,
        [&](int64_t micro) {
          sent_before[static_cast<size_t>(micro)] = mesh.bytes_sent();
          return HostTokens{};
        },
        0.0, {1}, [] { return false; });
  };
  // Only the first step of a run gathers frozen weights that stay gathered, so a later step is planned.
  if (request.step.sharding.lora.any() && !request.step.sharding.reshard_after_forward)
    walk(std::min(period, walked));
  walk(walked);
  RankPlan plan;
  // Read before the evaluation, whose bytes are no part of a step.
  const AxisBytes sent = mesh.bytes_sent();
  for (const MeshAxis axis : kMeshAxes) {
    plan.traffic_per_step[axis] = sent[axis] - sent_before.front()[axis];
    if (more > 0)
      plan.traffic_per_step[axis] +=
          more * (sent_before.back()[axis] - sent_before[static_cast<size_t>(walked - 1 - period)][axis]);
  }
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
  const StageSplit split = stage_split(request.model, request.mesh, request.step.sharding);
  std::set<std::vector<int64_t>> known;  // layers of the ranks planned between the ends
  RankPlan fullest;
  for (int64_t rank = 0; rank < request.mesh.pipeline; ++rank) {
    const bool is_end = rank == 0 || rank == request.mesh.pipeline - 1;
    std::vector<int64_t> layers;
    for (const Stage& stage : split.of_rank(rank)) layers.push_back(stage.layers);
    if (!is_end && !known.insert(layers).second) continue;
    const RankPlan plan = plan_stages_of(request, rank);
    if (plan.memory.total() > fullest.memory.total()) fullest = plan;
  }
  return fullest;
}

std::vector<StagePlan> plan_stages(const PlanRequest& request) {
  const StageSplit split = stage_split(request.model, request.mesh, request.step.sharding);
  // A step of 2 P micro-batches has as many in flight as a longer one.
  const PipelineSizes sizes = pipeline_sizes(request.mesh, request.step.sharding,
                                             std::min(request.micro_batches, 2 * request.mesh.pipeline));
  std::vector<StagePlan> stages(split.layers.size());
  for (int64_t rank = 0; rank < request.mesh.pipeline; ++rank) {
    const int64_t bytes = plan_stages_of(request, rank).memory.total();
    const int64_t in_flight = most_in_flight(pipeline_actions(sizes, rank));
    for (const Stage& stage : split.of_rank(rank))
      stages[static_cast<size_t>(stage.number)] = {stage, bytes, in_flight};
  }
  return stages;
}

std::vector<SentByOperation> sent_by_operation(const PlanRequest& request,
                                               const MeshCoordinates& coordinates) {
  std::vector<SentByOperation> record;
  const auto add = [&](const std::string& axis, const std::string& operation, int64_t bytes) {
    auto row = std::ranges::find_if(record, [&](const SentByOperation& each) {
      return each.axis == axis && each.operation == operation;
    });
    if (row == record.end()) row = record.insert(row, {.axis = axis, .operation = operation});
    ++row->calls;
    row->bytes += bytes;
  };
  const auto make = [&](const MeshGroup& group) {
    return make_planned_communicator(group.name, group.rank, group.size, request.device,
                                     [&add, group](const char* operation, int64_t bytes) {
                                       if (group.size > 1) add(group.name, operation, bytes);
                                     });
  };
  DeviceMesh mesh(request.mesh, coordinates, make, request.step.sharding.stages_per_rank);
  const Stream stream(planned_device(request));
  MemoryLedger ledger;
  TrainingStep step(request.model, request.step, mesh, stream, ledger);
  for (const int64_t number : {1, 2}) {
    record.clear();  // the first step may gather more
    step.run(
        request.micro_batches, [](int64_t) { return HostTokens{}; }, 0.0, {number}, [] { return false; });
  }
  // "world", which is no axis of the mesh, comes last.
  const auto place = [](const SentByOperation& sent) {
    return std::ranges::find(kMeshAxisWords, sent.axis) - kMeshAxisWords.begin();
  };
  std::ranges::stable_sort(record, {}, place);
  return record;
}

}  // namespace ripstop
