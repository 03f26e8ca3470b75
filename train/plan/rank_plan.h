// The plan of a training step: what it will allocate and send, before any of it happens.
#pragma once
#include <cstdint>

#include "parallel/device_mesh.h"
#include "train/step/training_step.h"

namespace ripstop {

/// What is planned. The mesh is resolved.
struct PlanRequest {
  ModelConfig model;
  StepOptions step;
  MeshSizes mesh;
  DeviceKind device = DeviceKind::kCpu;
  int64_t micro_batches = 1;
  bool deterministic = false;  ///< Device::deterministic
};

/// What one rank will use.
struct RankPlan {
  MemoryUse memory;  ///< everything ripstop allocates on the device, at the peak
  MemoryUse arena;   ///< the part of it that the arena needs: TrainingStep's capacity
  DeviceMesh::AxisBytes traffic_per_step;
};

/// Runs one step and one evaluation as the rank at `coordinates` on kMeta: the same code on kernels that
/// compute nothing and communicators that move nothing, so the plan equals the peak to the byte. Takes
/// milliseconds, needs no device.
RankPlan plan_rank(const PlanRequest& request, const MeshCoordinates& coordinates);

/// The plan of the rank with the largest total: ranks differ by what they hold of replicated parameters
/// alone, so the corners of the mesh are looked at.
RankPlan plan_fullest(const PlanRequest& request);

}  // namespace ripstop
