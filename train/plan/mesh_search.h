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
/// sent between nodes if any group of the axis spans nodes, because a collective is as slow as its slowest
/// link.
SentBytes sent_bytes(const AxisBytes& traffic, const MeshSizes& mesh, int64_t ranks_per_node);

/// Axis sizes that a search must keep; nullopt: free.
using KeptSizes = PerAxis<std::optional<int64_t>>;

/// Numbers of bytes up to this many times the fewest bytes rank as equal: padding alone makes such a
/// difference.
inline constexpr double kAsFewBytes = 1.05;

/// The percent, rounded down, of all computation that goes to empty sequences and to recomputation.
int64_t lost_percent(const RunConfig& config, const ResolvedRun& run);

/// The result of a search.
struct MeshSearch {
  /// Best first: the least lost_percent, then the fewest bytes sent between nodes, then the fewest bytes sent
  /// in all (differences within kAsFewBytes do not count), then the largest micro-batch, then the least
  /// memory. Each row has the least recomputation that fits, as resolve_run plans this mesh and micro-batch.
  std::vector<ResolvedRun> rows;
  int64_t fitting = 0;             ///< pairs of mesh and micro-batch that fit, those in `rows` included
  std::optional<MeshSizes> first;  ///< the first mesh tried; nullopt if the kept sizes allow none
};

/// Tries every mesh of target.ranks ranks that has the sizes in `kept`, with
/// config.train.micro_batch_sequences or, for "auto", every size of micro_batches_to_try. Ignores the sizes
/// of config.mesh. Skips meshes whose tensor groups would span nodes, unless
/// config.mesh.allow_tensor_across_nodes is set. Requires that target.ranks_per_node is known. Returns at
/// most `most_rows` rows. Makes about two plans for each mesh and mode of recomputation, because memory grows
/// with the micro-batch. Throws as unplanned_run.
MeshSearch search_meshes(const RunConfig& config, const RunTarget& target, const KeptSizes& kept,
                         int64_t most_rows);

}  // namespace ripstop
