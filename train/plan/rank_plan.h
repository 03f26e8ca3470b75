// The plan of a training step: what a rank will allocate and send, known before any of it happens.
#pragma once
#include <cstdint>

#include "parallel/device_mesh.h"
#include "train/step/training_step.h"

namespace ripstop {

/// A step to plan. The mesh is resolved: no size is 0.
struct PlanRequest {
  ModelConfig model;
  StepOptions step;
  MeshSizes mesh;
  DeviceKind device = DeviceKind::kCpu;
  int64_t micro_batches = 1;
  bool deterministic = false;  ///< Device::deterministic
  bool validates = true;       ///< beside steps there are evaluations
};

/// Memory and traffic of one rank.
struct RankPlan {
  MemoryUse memory;  ///< all bytes that ripstop allocates on the device, at the peak
  MemoryUse arena;   ///< the arena's part of `memory`: the arena_capacity of TrainingStep
  /// The part of a step and that of an evaluation; `arena` is the larger one. A model of few layers that
  /// recomputes much takes more for an evaluation.
  MemoryUse step_arena, evaluation_arena;
  AxisBytes traffic_per_step;  ///< of every step but the first, which may gather more
};

/// Runs one step and, if the run validates, one evaluation on kMeta as the rank at `coordinates`. This is the
/// code of a real step, with kernels that compute nothing and communicators that move nothing. So the plan
/// equals the peak of a real step to the byte. Walks the first, one middle and the last micro-batch: the
/// others send and hold what the middle one does. So it takes milliseconds for any batch. Needs no device.
/// Not collective.
RankPlan plan_rank(const PlanRequest& request, const MeshCoordinates& coordinates);

/// The plan of the rank with the largest total. Ranks differ only by the replicated parameters in their
/// shards, so this plans the corners of the mesh and not every rank.
RankPlan plan_fullest(const PlanRequest& request);

}  // namespace ripstop
