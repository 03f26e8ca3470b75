#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"
#include "train/plan/training_data.h"

namespace ripstop {

/// A checkpoint that a run may resume from.
struct ResumableCheckpoint {
  RunConfig config;                           ///< the checkpoint's config, with later changes (Takeovers)
  MeshSizes mesh;                             ///< mesh that saved the checkpoint
  std::vector<ConfigDifference> differences;  ///< how the run's config differs from `config`, all allowed
  int64_t steps = 0;                          ///< steps of the whole run with `config`; 0: not counted
  bool allow_changes = false;                 ///< --allow-changes or run.continue_from is given

  /// Whether the run stores the difference as a change, from its next step on.
  bool is_change(const ConfigDifference& each) const { return allow_changes && each.may_change_if_allowed; }
  std::vector<ConfigDifference> changes() const;
};

/// A run that would go on with a checkpoint.
struct ResumingRun {
  const RunConfig& config;
  const ModelConfig& model;
  DataSets datasets;            ///< the training sets; empty if they are absent
  std::string validation = {};  ///< content_hashes() of the validation sets; empty: not known
  bool allow_changes = false;   ///< --allow-changes
  bool continues = false;       ///< `checkpoint` is that of run.continue_from
};

/// Throws an Error if the run cannot go on with `checkpoint`. kUsage: an imported model; other or reordered
/// data sets, other validation sets or another tokenizer than the manifest's; then differences from
/// ResumableCheckpoint::config or the model that are not allowed, as old -> new; too few steps; and, unless
/// changes are allowed, check_decay(). kStorage: a stored config that this version cannot read, a manifest
/// that contradicts itself, or another order of sequences.
///
/// `data`: the counts of run.datasets; null: data is not compared. If the order of sequences is the same,
/// count_run() counts `data` from `checkpoint` on, even if the config is then refused.
ResumableCheckpoint check_resumable(const Checkpoint& checkpoint, const ResumingRun& run, TrainingData* data);

/// Notes for people: one for each difference, one if another mesh or micro-batch rounds differently, and one
/// if other [generation] settings give other ROUGE scores. `step`: the checkpoint's.
std::vector<std::string> resume_notes(const ResumableCheckpoint& saved, const MeshSizes& mesh, int64_t step);

/// With schedule.kind = "wsd", throws Error(kUsage) if `checkpoint` lies in the decay of a run that had
/// `old_steps` steps and has `steps` now. The hint has the words that begin a new run instead.
void check_decay(const Checkpoint& checkpoint, const RunConfig& config, int64_t old_steps, int64_t steps);

/// A note if the learning rate jumps after `step`, because the run had `old_config` and `old_steps` steps and
/// has `config` and `steps` now: "... was 2.96e-06 in step 40 and is 2.01e-04 in step 41". Else "".
std::string rate_jump(const RunConfig& old_config, const RunConfig& config, int64_t step, int64_t old_steps,
                      int64_t steps);

}  // namespace ripstop
