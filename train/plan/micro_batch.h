// Micro-batch sizes and recomputation: what is worth trying, and the plan of a run with it.
#pragma once
#include <cstdint>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Micro-batch sizes to try for `train.micro_batch_sequences = "auto"` on a mesh, largest first. Empty if no
/// size gives every rank of a tensor group equally many rows.
std::vector<int64_t> micro_batches_to_try(const RunConfig& config, const RunTarget& target,
                                          const MeshSizes& mesh);

/// The modes to try for `train.recompute`, least recomputation first: all for "auto", else the one that the
/// config names.
std::vector<Recompute> recomputes_to_try(const RunConfig& config);

/// The modes that compute at least as much again as the config asks for: these may fit instead.
std::vector<Recompute> recomputes_from(const RunConfig& config);

/// Sequences, empty ones too, that all data ranks of `mesh` compute in a step with this micro-batch.
int64_t computed_sequences(const RunConfig& config, const MeshSizes& mesh, int64_t sequence_count);

/// Sets the micro-batch of `run` to `sequence_count` and plans the step and the summaries on run.mesh, with
/// the recomputation that `run` has. Returns whether the plan fits into the memory of `target`.
bool plan_with_micro_batch(const RunConfig& config, const RunTarget& target, int64_t sequence_count,
                           ResolvedRun& run);

/// Plans `run` with the first of `recomputes` with which any of `sizes` fits, and the largest of these:
/// memory grows with the micro-batch, a larger micro-batch is faster, but what is computed again costs more.
/// Neither list is empty; sizes are largest first. If nothing fits, plans what needs the least memory, of the
/// smallest size, and returns false. Takes milliseconds for any batch.
bool plan_with_least_recompute(const RunConfig& config, const RunTarget& target,
                               const std::vector<Recompute>& recomputes, const std::vector<int64_t>& sizes,
                               ResolvedRun& run);

/// Gives the head larger chunks of rows if the memory that `run` leaves has room for them: on a GPU, where
/// they save time and change no more than the order of sums. Up to 8 times HeadLoss::kChunkRows, and no more
/// than the rows of a micro-batch. `run` is planned and fits.
void enlarge_head_chunk(const RunTarget& target, ResolvedRun& run);

/// "1 micro-batch of 4 on each of 2 data ranks", and idle_text.
std::string micro_batches_text(const RunConfig& config, const ResolvedRun& run);

/// ", 25.0% idle: data rank 3 has no sequence, train.global_batch_sequences=4 takes the same time": the ranks
/// that have less to do than others, and the batch with which all have as much. "" if no sequence is empty.
std::string idle_text(const RunConfig& config, const ResolvedRun& run);

}  // namespace ripstop
