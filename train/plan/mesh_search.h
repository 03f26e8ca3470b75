// The search of `plan --search`: the meshes and micro-batches of a job that fit, best first.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Bytes that a rank sends in a step, by kind of link.
struct SentBytes {
  int64_t inside_nodes = 0;
  int64_t between_nodes = 0;

  int64_t total() const { return inside_nodes + between_nodes; }
  bool operator==(const SentBytes&) const = default;
};

/// Sums the traffic of a step on `mesh` in nodes of `ranks_per_node` > 0 ranks. All bytes of an axis count as
/// sent between nodes if any group of the axis spans nodes: a collective is as slow as its slowest link.
SentBytes sent_bytes(const AxisBytes& traffic, const MeshSizes& mesh, int64_t ranks_per_node);

/// Axis sizes that a search must keep; nullopt: any size.
using KeptSizes = PerAxis<std::optional<int64_t>>;

/// Numbers of bytes up to this multiple of the least count as equal: padding alone differs that much.
inline constexpr double kAsFewBytes = 1.05;

/// Percent of the computation, rounded down, that goes into empty sequences, recomputation and, in a
/// pipeline, waits of ranks that have nothing to compute.
int64_t lost_percent(const RunConfig& config, const ResolvedRun& run);

struct MeshSearch {
  /// Best first: with rates the shortest step (ResolvedRun::time), else the least lost_percent, then the
  /// fewest bytes between nodes, then the fewest bytes in all (kAsFewBytes says which count as equal), then
  /// the largest micro-batch, then the least memory. Each row has the least recomputation that fits.
  std::vector<ResolvedRun> rows;
  int64_t fitting = 0;             ///< number of pairs of mesh and micro-batch that fit, in `rows` or not
  std::optional<MeshSizes> first;  ///< the mesh tried first; nullopt if the kept sizes allow no mesh
};

/// Tries every mesh of target.ranks ranks with the sizes in `kept` (not config.mesh's sizes), with the
/// config's micro-batch or, for "auto", micro_batches_to_try. Skips meshes whose tensor groups would
/// span nodes, unless config.mesh.allow_tensor_across_nodes is set. Without kept.pipeline, tries pipelines
/// only if the rates of products are known, because percent lost and bytes sent have no common measure, and
/// only on several nodes: of up to 16 ranks with one or two stages each, if a stage lies inside a node. With
/// it, keeps config.mesh.pipeline_stages_per_rank, too. target.ranks_per_node must be known. Returns at
/// most `most_rows` rows. Makes one plan for each mesh and mode of recomputation if the largest micro-batch
/// fits, else as many as a bisection takes. Throws like unplanned_run.
MeshSearch search_meshes(const RunConfig& config, const RunTarget& target, const KeptSizes& kept,
                         int64_t most_rows);

}  // namespace ripstop
