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

/// Meshes that send up to this multiple of the fewest bytes count as equal: padding alone differs that much.
inline constexpr double kAsFewBytes = 1.05;

/// Percent of the ranks' time, rounded down, that empty sequences, recomputation and, in a pipeline, ranks
/// with nothing to compute take.
int64_t lost_percent(const RunConfig& config, const ResolvedRun& run);

struct MeshSearch {
  /// Best first: with rates the shortest step (ResolvedRun::time), else the least lost_percent, then the
  /// fewest bytes between nodes, then the fewest bytes in all (kAsFewBytes says which count as equal), then
  /// the largest micro-batch, then the least memory. Each row has the least recomputation that fits.
  std::vector<ResolvedRun> rows;
  int64_t fitting = 0;             ///< number of plans that fit, in `rows` or not
  std::optional<MeshSizes> first;  ///< the mesh tried first; nullopt if none was tried
};

/// Tries every mesh of target.ranks ranks with the sizes in `kept` (not config.mesh's sizes), with the
/// config's micro-batch or, for "auto", micro_batches_to_try. Skips meshes that cannot cut the batch, and
/// those whose tensor groups would span nodes, unless config.mesh.allow_tensor_across_nodes is set. With
/// kept.pipeline, tries only config.mesh.pipeline_stages_per_rank. Without, tries pipelines of up to 16 ranks
/// with one or two stages each, if the job has several nodes, a stage lies inside one, and rates of products
/// are known: only time can weigh lost percent against sent bytes. target.ranks_per_node must be known.
/// Returns at most `most_rows` rows. With rates, plans and times every micro-batch that fits; without, plans
/// only those that may be among the best. Throws like unplanned_run and with_layers().
MeshSearch search_meshes(const RunConfig& config, const RunTarget& target, const KeptSizes& kept,
                         int64_t most_rows);

}  // namespace ripstop
