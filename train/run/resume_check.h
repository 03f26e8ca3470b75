// The changes that a run may make when it goes on from a checkpoint, and their effects.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"

namespace ripstop {

/// A checkpoint that a run may go on from.
struct ResumableCheckpoint {
  RunConfig config;                           ///< with which it was saved
  MeshSizes mesh;                             ///< likewise
  std::vector<ConfigDifference> differences;  ///< from `config` to the run's config; all may differ
};

/// Compares the config and the model that the manifest stores with those of the run. Throws Error(kUsage)
/// that lists old -> new of everything that must not differ, and Error(kStorage) if the stored config
/// cannot be read: another version wrote it.
ResumableCheckpoint check_stored_config(const Checkpoint& checkpoint, const RunConfig& config,
                                        const ModelConfig& model);

/// One text for each difference, and for each effect on the results: other rounding on another mesh or with
/// other micro-batches (decided by the memory if they are "auto"), ROUGE by other [generation] settings.
std::vector<std::string> resume_notes(const ResumableCheckpoint& saved, const MeshSizes& mesh);

/// "the learning rate was 2.96e-06 in step 40 and is 2.01e-04 in step 41", if `step` steps are done and the
/// next rate is another one because the run has `steps` steps now and had `old_steps`. Else empty.
std::string rate_jump(const RunConfig& config, int64_t step, int64_t old_steps, int64_t steps);

}  // namespace ripstop
