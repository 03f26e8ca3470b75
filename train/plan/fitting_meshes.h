// Alternatives to a plan that exceeds the memory: other meshes, micro-batches and numbers of ranks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// A mesh, a micro-batch and a mode of recomputation, with the memory that a rank needs for them.
struct FittingMesh {
  MeshSizes mesh;
  int64_t micro_batch_sequences = 0;
  int64_t bytes = 0;  ///< memory of the fullest rank, with its libraries
  Recompute recompute = Recompute::kNone;

  /// "replicate 1 x fsdp 2 x tensor 1 with micro_batch_sequences 4 and recompute full"; "and recompute ..."
  /// only with recomputation.
  std::string settings_text() const;
};
/// The settings of a planned run. FittingMesh::bytes is run.needed_bytes() + run.library_bytes.
FittingMesh fitting_mesh(const ResolvedRun& run);

/// Alternatives to a plan of R ranks. The memory of each is planned, not extrapolated.
struct FittingMeshes {
  /// The meshes of R ranks that fit, with the config's pipeline and no replicas, each with the least
  /// recomputation that fits and then the largest micro-batch. Only if there are none, `more_ranks` and
  /// `bfloat16_moments` are searched.
  std::vector<FittingMesh> same_ranks;
  /// The smallest mesh found that fits if each rank has as much memory as now: in whole nodes of the present
  /// size, else in nodes of any size. nullopt: none was found with up to `most_ranks` ranks.
  std::optional<FittingMesh> more_ranks;
  /// Options and overrides for more_ranks: "--nodes 3 --ntasks-per-node 4 mesh.tensor=4". "" without
  /// more_ranks, or if target.ranks_per_node is not known.
  std::string words_to_type;
  int64_t most_ranks = 0;  ///< max(1024, 64 R)
  /// A mesh of R ranks that fits with bfloat16 moments; nullopt if none does, or the run has them already.
  std::optional<FittingMesh> bfloat16_moments;
  FittingMesh least;  ///< the mesh of R ranks that needs the least memory

  /// "these fit: ...", or "12 ranks with as much memory each would fit (--nodes 3 --ntasks-per-node 4): ...;
  /// with 4 ranks as now, ... needs 9.1 GiB", or "no number of ranks up to 1024 helps: ...".
  std::string to_text() const;
};

/// Whether tensor groups of `tensor` ranks lie inside the nodes of `target`, or the config allows groups
/// across nodes. True if target.ranks_per_node is not known.
bool tensor_groups_fit_nodes(const RunConfig& config, const RunTarget& target, int64_t tensor);

/// Plans alternatives to the mesh and micro-batch of `run`, with at least the config's recomputation.
/// target.device_memory_bytes must be known. Takes milliseconds a mesh, for most models less than a second.
FittingMeshes find_fitting_meshes(const RunConfig& config, const RunTarget& target, ResolvedRun run);

/// Error(kResources): a plan exceeds the memory. The hint names alternatives.
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
