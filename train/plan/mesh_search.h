// The search for a mesh: every mesh and micro-batch of a job that fits, best first.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Bytes that a rank sends in a step, by the links that they take.
struct SentBytes {
  int64_t inside_nodes = 0;
  int64_t between_nodes = 0;

  int64_t total() const { return inside_nodes + between_nodes; }
  bool operator==(const SentBytes&) const = default;
};

/// The traffic of a step on `mesh`, in nodes of `ranks_per_node` > 0 ranks. An axis with a group on several
/// nodes counts between nodes as a whole: a collective is as slow as its slowest link.
SentBytes sent_bytes(const AxisBytes& traffic, const MeshSizes& mesh, int64_t ranks_per_node);

/// Axis sizes that a search keeps. One without a value is free.
using KeptSizes = PerAxis<std::optional<int64_t>>;

/// A row that sends at most so many times the fewest bytes sends as few: the difference may be that of
/// paddings, and says nothing of the time.
inline constexpr double kAsFewBytes = 1.05;

/// The whole percents of what the ranks compute that train nothing: empty sequences, and what is computed
/// again.
int64_t lost_percent(const RunConfig& config, const ResolvedRun& run);

/// The result of a search.
struct MeshSearch {
  /// Best first. Each row is the best of those that are left: of the least lost_percent and the fewest bytes
  /// between nodes, the one with the fewest bytes in all (see kAsFewBytes for both). Of equal ones, that of
  /// the larger micro-batch, then that of the least memory. Each is planned as by resolve_run with its mesh
  /// and micro-batch: with the least recomputation with which these fit.
  std::vector<ResolvedRun> rows;
  int64_t fitting = 0;             ///< meshes with a micro-batch that fit, those in `rows` included
  std::optional<MeshSizes> first;  ///< one of the meshes looked at; nullopt if the kept sizes allow none
};

/// Looks at every mesh of target.ranks ranks with the kept sizes, with config.train.micro_batch_sequences or,
/// for "auto", with every size of micro_batches_to_try. Skips tensor groups across nodes unless
/// config.mesh.allow_tensor_across_nodes; does not use the sizes of config.mesh. target.ranks_per_node must
/// be known. Plans the best `most_rows`, and beside these only what the search needs: it takes two plans or
/// so for a mesh with one mode of recomputation, because memory grows with the micro-batch. Throws what
/// unplanned_run throws.
MeshSearch search_meshes(const RunConfig& config, const RunTarget& target, const KeptSizes& kept,
                         int64_t most_rows);

}  // namespace ripstop
