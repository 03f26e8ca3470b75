// The two steps of a check: on a mesh, on one rank alone, and the comparison of both.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "model/device/device.h"
#include "parallel/device_mesh.h"
#include "train/check/check_settings.h"
#include "train/check/check_verdict.h"
#include "train/check/rank_findings.h"

namespace ripstop {

/// The results of the steps on a mesh, copied to host memory so that the mesh's own memory is free again: of
/// each step its result and the float32 gradients of this rank's shards before clipping; after the last step
/// the master weights. States are numbered as in RankFindings.
struct KeptSteps {
  std::array<StepSums, kCheckSteps> steps;
  std::array<std::vector<std::vector<float>>, kComparedStates> shards;  ///< by state, then by unit
  AxisBytes sent;                                                       ///< by this rank in the last step
};

/// Takes the steps of `settings` on `mesh`, whose tensors are on `device`. Collective over the mesh.
KeptSteps run_steps(DeviceMesh& mesh, const CheckSettings& settings, const Device& device);

/// Takes the same steps, those of all data ranks of `mesh`, on this rank alone, and compares this rank's
/// shards with them. Not collective.
RankFindings compare_with_one_rank(const KeptSteps& kept, const DeviceMesh& mesh,
                                   const CheckSettings& settings, const Device& device);

/// Both, and the verdict, which is the same on all ranks. Collective over the mesh.
MeshVerdict check_mesh(DeviceMesh& mesh, const CheckSettings& settings, const Device& device);

}  // namespace ripstop
