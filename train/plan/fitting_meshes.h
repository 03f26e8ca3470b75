// Alternatives to a plan that does not fit: meshes, micro-batches, more ranks, more memory.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// A mesh with a micro-batch and what is computed again, and what it needs.
struct FittingMesh {
  MeshSizes mesh;
  int64_t micro_batch_sequences = 0;
  int64_t bytes = 0;  ///< of the fullest rank
  Recompute recompute = Recompute::kNone;

  /// "replicate 1 x fsdp 2 x tensor 1 with micro_batch_sequences 4", and " and recompute full" if it is not
  /// none.
  std::string settings_text() const;
};
/// The mesh of `run` and its plan.
FittingMesh fitting_mesh(const ResolvedRun& run);

/// All of it is planned, nothing is extrapolated.
struct FittingMeshes {
  /// The meshes fsdp x tensor of as many ranks as now that fit, each with the least recomputation with which
  /// it fits, and the largest micro-batch that then fits.
  std::vector<FittingMesh> same_ranks;
  /// If there are none: the mesh of the fewest ranks that fits, each rank with as much memory as now. In
  /// whole nodes of as many ranks as now if such a mesh fits, else in nodes of any size. nullopt if none of
  /// up to `most_ranks` ranks fits.
  std::optional<FittingMesh> more_ranks;
  /// The words that make a job of more_ranks: "--nodes 3 --ntasks-per-node 4 mesh.tensor=4". Empty if the
  /// ranks of a node are not known now.
  std::string words_to_type;
  int64_t most_ranks = 0;  ///< 1024, or 64 times as many as now if these are more
  /// If there are none: a mesh of as many ranks as now that fits with moments in bfloat16; nullopt if none
  /// does, or if they are.
  std::optional<FittingMesh> bfloat16_moments;
  FittingMesh least;  ///< of the meshes of as many ranks as now: the one whose ranks need the least memory

  /// "these fit: ...", "12 ranks with as much memory each would fit (--nodes 3 --ntasks-per-node 4): ...;
  /// with 4 ranks as now, replicate 1 x fsdp 1 x tensor 4 with micro_batch_sequences 1 needs 9.1 GiB".
  std::string to_text() const;
};

/// Whether train takes groups of `tensor` ranks on the nodes of `target`: a group lies inside a node, or may
/// span nodes. True if the ranks of a node are not known.
bool tensor_groups_fit_nodes(const RunConfig& config, const RunTarget& target, int64_t tensor);

/// Plans `run` on other meshes, with other micro-batches and with as much recomputation as config asks for or
/// more, for a target whose memory is known. Takes
/// milliseconds a mesh, less than a second for most models.
FittingMeshes find_fitting_meshes(const RunConfig& config, const RunTarget& target, ResolvedRun run);

/// Error(kResources): a plan that exceeds the memory. The hint is what would fit.
class PlanTooLarge : public Error {
 public:
  PlanTooLarge(const std::string& what, FittingMesh refused, FittingMeshes fitting)
      : Error(ExitCode::kResources, what, fitting.to_text()),
        refused_(refused),
        fitting_(std::move(fitting)) {}
  const FittingMesh& refused() const { return refused_; }
  const FittingMeshes& fitting() const { return fitting_; }

 private:
  FittingMesh refused_;
  FittingMeshes fitting_;
};

}  // namespace ripstop
