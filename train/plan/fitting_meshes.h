// Alternatives to a plan that exceeds the memory: other meshes and micro-batches, more ranks, more memory.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// A mesh with a micro-batch and a mode of recomputation, and the memory that a rank then needs.
struct FittingMesh {
  MeshSizes mesh;
  int64_t micro_batch_sequences = 0;
  int64_t bytes = 0;  ///< memory that the fullest rank needs, with libraries
  Recompute recompute = Recompute::kNone;

  /// "replicate 1 x fsdp 2 x tensor 1 with micro_batch_sequences 4 and recompute full". Without recomputation
  /// the words "and recompute ..." are left out.
  std::string settings_text() const;
};
/// The mesh, micro-batch and recomputation of a planned run. The memory is run.needed_bytes() and libraries.
FittingMesh fitting_mesh(const ResolvedRun& run);

/// Alternatives to a plan of R ranks. The memory of each is planned, not extrapolated.
struct FittingMeshes {
  /// The meshes fsdp x tensor of R ranks that fit: each with the least recomputation with which it fits, and
  /// the largest micro-batch that then fits. `more_ranks` and `bfloat16_moments` are searched only if there
  /// is no such mesh.
  std::vector<FittingMesh> same_ranks;
  /// The mesh of the fewest ranks that fits if each rank has as much memory as now: in whole nodes of the
  /// present size, or, if none fits, in nodes of any size. nullopt: no mesh of up to `most_ranks` ranks fits.
  std::optional<FittingMesh> more_ranks;
  /// The options and overrides for more_ranks: "--nodes 3 --ntasks-per-node 4 mesh.tensor=4". "" if
  /// target.ranks_per_node is not known.
  std::string words_to_type;
  int64_t most_ranks = 0;  ///< max(1024, 64 R)
  /// A mesh of R ranks that fits with moments in bfloat16; nullopt if no mesh does, or if the run's moments
  /// are bfloat16 anyway.
  std::optional<FittingMesh> bfloat16_moments;
  FittingMesh least;  ///< the mesh of R ranks that needs the least memory

  /// "these fit: ...", "12 ranks with as much memory each would fit (--nodes 3 --ntasks-per-node 4): ...;
  /// with 4 ranks as now, replicate 1 x fsdp 1 x tensor 4 with micro_batch_sequences 1 needs 9.1 GiB".
  std::string to_text() const;
};

/// Whether train accepts tensor groups of `tensor` ranks on the nodes of `target`: the groups lie inside
/// nodes, or the config allows groups across nodes. True if target.ranks_per_node is not known.
bool tensor_groups_fit_nodes(const RunConfig& config, const RunTarget& target, int64_t tensor);

/// Finds alternatives to a run that does not fit: plans other meshes and micro-batches, with at least the
/// config's recomputation. Requires that target.device_memory_bytes is known. Takes milliseconds a mesh, less
/// than a second for most models.
FittingMeshes find_fitting_meshes(const RunConfig& config, const RunTarget& target, ResolvedRun run);

/// Error(kResources) for a plan that exceeds the memory. The hint names alternatives.
class PlanTooLarge : public Error {
 public:
  PlanTooLarge(const std::string& what, FittingMesh refused, FittingMeshes fitting)
      : Error(ExitCode::kResources, what, fitting.to_text()),
        refused_(refused),
        fitting_(std::move(fitting)) {}
  /// The plan that exceeds the memory.
  const FittingMesh& refused() const { return refused_; }
  const FittingMeshes& fitting() const { return fitting_; }

 private:
  FittingMesh refused_;
  FittingMeshes fitting_;
};

}  // namespace ripstop
