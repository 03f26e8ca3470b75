#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"

namespace ripstop {

/// A checkpoint that a run may resume from.
struct ResumableCheckpoint {
  RunConfig config;                           ///< config of the run that saved the checkpoint
  MeshSizes mesh;                             ///< mesh of the run that saved the checkpoint
  std::vector<ConfigDifference> differences;  ///< how the run's config differs from `config`, all allowed
  int64_t steps = 0;                          ///< steps of the whole run with `config`; set by Trainer
  bool allow_changes = false;                 ///< --allow-changes or run.continue_from is given

  /// Whether the run stores the difference as a change, from its next step on.
  bool is_change(const ConfigDifference& each) const { return allow_changes && each.may_change_if_allowed; }
  std::vector<ConfigDifference> changes() const;
};

/// Compares config and model in the manifest, with the changes that later starts made (Takeovers), with the
/// run's. Throws Error(kUsage), listing old -> new, for differences that are not allowed, and Error(kStorage)
/// for a config that another version wrote. `allow_changes`: as in accept_differences.
ResumableCheckpoint check_stored_config(const Checkpoint& checkpoint, const RunConfig& config,
                                        const ModelConfig& model, bool allow_changes = false);

/// Notes for people: one for each difference, one if another mesh or micro-batch rounds
/// differently, and one if other [generation] settings give other ROUGE scores. `step`: of the checkpoint.
std::vector<std::string> resume_notes(const ResumableCheckpoint& saved, const MeshSizes& mesh, int64_t step);

/// Throws Error(kUsage) if `checkpoint` is behind the last of `steps`, or if a run that `continues` it would
/// make no step.
void check_steps_left(const Checkpoint& checkpoint, int64_t steps, bool continues);

/// Throws Error(kUsage), with the words that begin a new run instead, if a run with schedule.kind = "wsd"
/// that had `old_steps` steps and has `steps` now took a step up to `checkpoint` with another rate than now:
/// its decay had begun.
void check_decay(const Checkpoint& checkpoint, const RunConfig& config, int64_t old_steps, int64_t steps);

/// A note if the learning rate jumps after `step`, because the run had another config or `old_steps` steps,
/// and has `config` and `steps` now: "... was 2.96e-06 in step 40 and is 2.01e-04 in step 41". Empty without.
std::string rate_jump(const RunConfig& old_config, const RunConfig& config, int64_t step, int64_t old_steps,
                      int64_t steps);

}  // namespace ripstop
