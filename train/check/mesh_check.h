// The two steps of a check: on a mesh, on one rank alone, and the comparison of both.
#pragma once
#include <array>
#include <vector>

#include "model/device/device.h"
#include "parallel/device_mesh.h"
#include "train/check/check_settings.h"
#include "train/check/check_verdict.h"
#include "train/check/rank_findings.h"

namespace ripstop {

/// The results of this rank's steps on a mesh, copied to host memory so that the mesh's memory can be freed:
/// the sums of each step, and of each state (RankFindings) the shards: float32 gradients before clipping,
/// master weights after the last step.
struct KeptSteps {
  std::array<StepSums, kCheckSteps> steps;
  std::array<std::vector<std::vector<float>>, kComparedStates> shards;  ///< by state, then by unit
  AxisBytes sent;                                                       ///< by this rank in the last step
};

/// Takes the steps of `settings` on `mesh`, whose tensors are on `device`. Collective over the mesh.
KeptSteps run_steps(DeviceMesh& mesh, const CheckSettings& settings, const Device& device);

/// Takes the same steps, with the sequences of all data ranks of `mesh`, on this rank alone, and compares
/// this rank's shards with the results. Not collective.
RankFindings compare_with_one_rank(const KeptSteps& kept, const DeviceMesh& mesh,
                                   const CheckSettings& settings, const Device& device);

/// The findings of all ranks, in rank order. Throws Error(kBug) if ranks have different numbers of parameters
/// or units. Collective.
std::vector<RankFindings> findings_of_all_ranks(Communicator& world, const RankFindings& own);

/// run_steps, compare_with_one_rank and the verdict, the same on all ranks. Collective over the mesh.
MeshVerdict check_mesh(DeviceMesh& mesh, const CheckSettings& settings, const Device& device);

}  // namespace ripstop
