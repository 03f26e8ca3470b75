// The plan of a training step: the bytes that a rank will allocate and send.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/device_mesh.h"
#include "train/step/training_step.h"

namespace ripstop {

/// A step to plan. All sizes of the mesh are known.
struct PlanRequest {
  ModelConfig model;
  StepOptions step;
  MeshSizes mesh;
  DeviceKind device = DeviceKind::kCpu;
  int64_t micro_batches = 1;
  bool deterministic = false;  ///< value of Device::deterministic
  bool validates = true;       ///< the run also has evaluations
};

struct RankPlan {
  MemoryUse memory;  ///< all bytes that ripstop allocates on the device, at the peak
  MemoryUse arena;   ///< the arena's part of `memory`: the arena_capacity of TrainingStep
  /// The arena's peaks in a step and an evaluation; `arena` is the larger one. With few layers and much
  /// recomputation, an evaluation needs more than a step.
  MemoryUse step_arena, evaluation_arena;
  AxisBytes traffic_per_step;  ///< bytes sent in each step but the first, which may gather more
};

/// The number of micro-batches that a plan runs for a step of `micro_batches`. With P ranks in the pipeline:
/// all up to 3 P; else 3 P plus the remainder of `micro_batches` by P. The whole step only repeats the middle
/// group of P more often. Without a pipeline (P = 1): the first, one from the middle and the last.
int64_t walked_micro_batches(const MeshSizes& mesh, int64_t micro_batches);

/// The meta device on which a step is planned.
Device planned_device(const PlanRequest& request);

/// Runs a step, two if frozen weights stay gathered, and, if the run validates, an evaluation on kMeta as the
/// rank at `coordinates`: a real step's code with kernels that compute nothing and communicators that send
/// nothing, so the plan equals the peak of a real step to the byte. Runs walked_micro_batches(). Takes
/// milliseconds. Needs no device. Not collective.
RankPlan plan_rank(const PlanRequest& request, const MeshCoordinates& coordinates);

/// The plan of the rank with the most memory. Plans only the first and last rank of fsdp and tensor axis,
/// because ranks differ only by the replicated parameters in their shards. Of a pipeline, plans the first and
/// last rank, and between them the first with each number of layers: earlier ranks keep more micro-batches.
RankPlan plan_fullest(const PlanRequest& request);

/// A stage of a pipeline.
struct StagePlan {
  Stage stage;
  int64_t bytes = 0;      ///< RankPlan::memory of the stage's fullest rank
  int64_t in_flight = 1;  ///< the most micro-batches in flight at once, in both stages of a rank with two
};

/// Plans each stage, in order.
std::vector<StagePlan> plan_stages(const PlanRequest& request);

/// The calls of one operation on one axis in a step, and the bytes that a rank sends in them.
struct SentByOperation {
  std::string axis;       ///< "fsdp"; "world" for the sums of the step
  std::string operation;  ///< "all_gather", "reduce_scatter", "all_reduce", "exchange", "send"
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// The traffic of the rank at `coordinates` in a step after the first. The bytes of an axis add up to
/// RankPlan::traffic_per_step. Leaves out axes of one rank. Not collective.
std::vector<SentByOperation> sent_by_operation(const PlanRequest& request,
                                               const MeshCoordinates& coordinates);

}  // namespace ripstop
