// Micro-batch sizes: which ones are worth trying, and the plan of a run with one of them.
#pragma once
#include <cstdint>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Micro-batch sizes to try for `train.micro_batch_sequences = "auto"` on a mesh, largest first. Empty if no
/// size gives every rank of a tensor group equally many rows.
std::vector<int64_t> micro_batches_to_try(const RunConfig& config, const RunTarget& target,
                                          const MeshSizes& mesh);

/// Sets the micro-batch of `run` to `sequence_count` and plans the step and the summaries on run.mesh.
/// Returns whether the plan fits into the memory of `target`.
bool plan_with_micro_batch(const RunConfig& config, const RunTarget& target, int64_t sequence_count,
                           ResolvedRun& run);

}  // namespace ripstop
