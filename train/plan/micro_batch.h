#pragma once
#include <cstdint>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Maximum tokens of a micro-batch: planning takes time for each chunk of its logits.
inline constexpr int64_t kMostMicroBatchTokens = int64_t{1} << 24;

/// Whether the micro-batches of a step, of `sequence_count` sequences each, make whole turns: with two stages
/// on each rank, their number must be a multiple of mesh.pipeline. Always true with one stage on each rank.
bool are_turns_whole(const RunConfig& config, const MeshSizes& mesh, int64_t stages_per_rank,
                     int64_t sequence_count);

/// The micro-batch sizes to try for `train.micro_batch_sequences = "auto"` on a mesh, largest first. Empty if
/// no size, not even the config's, makes whole turns and gives all ranks of a tensor group as many rows.
std::vector<int64_t> micro_batches_to_try(const RunConfig& config, const RunTarget& target,
                                          const MeshSizes& mesh, int64_t stages_per_rank);

/// The modes to try for `train.recompute`, least recomputation first: all for "auto", else the config's.
std::vector<Recompute> recomputes_to_try(const RunConfig& config);

/// The modes with at least the recomputation that the config asks for.
std::vector<Recompute> recomputes_from(const RunConfig& config);

/// The number of sequences, empty ones included, that all data ranks compute in a step if a micro-batch has
/// `sequence_count` of them.
int64_t computed_sequences(const RunConfig& config, const MeshSizes& mesh, int64_t sequence_count);

/// Plans the step, the summaries and the snapshots of `run` with micro-batches of `sequence_count` sequences.
/// Returns whether the plan fits into the memory of `target`.
bool plan_with_micro_batch(const RunConfig& config, const RunTarget& target, int64_t sequence_count,
                           ResolvedRun& run);

/// Plans `run` with the first of `recomputes` with which the smallest of `sizes` fits, and with the largest
/// that then fits. Less recomputation saves more time than a larger micro-batch. Neither list may be empty;
/// `sizes` begins with the largest. If nothing fits, returns false and plans the smallest size with the mode
/// that needs the least memory. Takes milliseconds.
bool plan_with_least_recompute(const RunConfig& config, const RunTarget& target,
                               const std::vector<Recompute>& recomputes, const std::vector<int64_t>& sizes,
                               ResolvedRun& run);

/// On a GPU of known memory, enlarges the head's chunks of rows as far as fits, up to 8 HeadLoss::kChunkRows,
/// or until one chunk holds all rows of a micro-batch. Larger chunks save time and change only the order of
/// sums. `run` must be planned and fit.
void enlarge_head_chunk(const RunTarget& target, ResolvedRun& run);

/// "1 micro-batch of 4 on each of 2 data ranks", followed by idle_text.
std::string micro_batches_text(const RunConfig& config, const ResolvedRun& run);

/// ", 25.0% idle: data rank 3 has no sequence, train.global_batch_sequences=4 takes the same time": the
/// reason, and a batch that keeps all ranks busy. "" if no sequence is empty.
std::string idle_text(const RunConfig& config, const ResolvedRun& run);

}  // namespace ripstop
