// Traffic of a step, by axis and by operation.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/device_mesh.h"
#include "train/plan/rank_plan.h"

namespace ripstop {

/// The calls of one operation on one axis in a step, and the bytes that a rank sends in them.
struct SentByOperation {
  std::string axis;       ///< "fsdp"; "world" for the sums of the step
  std::string operation;  ///< "all_gather", "reduce_scatter", "all_reduce", "exchange"
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// Runs a step on kMeta, as plan_rank does, as the rank at `coordinates`: not the first of a run, which alone
/// gathers frozen weights that stay. Axes of one rank are left out.
/// The traffic of a real step depends on no data, so the bytes of an axis add up to what
/// DeviceMesh::bytes_sent counts. Not collective.
std::vector<SentByOperation> sent_by_operation(const PlanRequest& request,
                                               const MeshCoordinates& coordinates);

}  // namespace ripstop
