#pragma once
#include <array>
#include <vector>

#include "model/device/device.h"
#include "parallel/device_mesh.h"
#include "train/check/check_settings.h"
#include "train/check/check_verdict.h"

namespace ripstop {

/// This rank's results of the steps on a mesh. The shards are gradients before clipping or, for the last
/// state (kComparedStates), master weights; float32 in host memory, so that the mesh's memory can be freed.
struct KeptSteps {
  std::array<StepSums, kCheckSteps> steps;
  std::vector<size_t> places;  ///< indices in trained_table of this rank's units
  std::array<std::vector<std::vector<float>>, kComparedStates> shards;  ///< by state, then by unit
  AxisBytes sent;  ///< bytes sent by this rank in the last step
};

/// Takes the steps of `settings` on `mesh`. Collective over the mesh.
KeptSteps run_steps(DeviceMesh& mesh, const CheckSettings& settings, const Device& device);

/// Takes the steps of run_steps on this rank alone, with the sequences of all data ranks of `mesh`, and
/// compares the results with `kept`. Not collective.
RankFindings compare_with_one_rank(const KeptSteps& kept, const DeviceMesh& mesh,
                                   const CheckSettings& settings, const Device& device);

/// Findings in rank order. Throws Error(kBug) if numbers of parameters or units differ. Collective.
std::vector<RankFindings> findings_of_all_ranks(Communicator& world, const RankFindings& own);

/// Does a whole check: run_steps, compare_with_one_rank, judge. All ranks return the same verdict, except for
/// `sent`. Collective over the mesh.
MeshVerdict check_mesh(DeviceMesh& mesh, const CheckSettings& settings, const Device& device);

}  // namespace ripstop
