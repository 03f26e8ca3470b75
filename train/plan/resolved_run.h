// A config with every "auto" decided for the ranks, the data set and the device at hand.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/generate/inference_model.h"
#include "train/plan/rank_plan.h"
#include "train/plan/run_target.h"
#include "train/plan/snapshot_plan.h"

namespace ripstop {

struct ResolvedRun {
  ModelConfig model;
  MeshSizes mesh;
  StepOptions step;
  int64_t micro_batches = 1;  ///< number of micro-batches of each data rank in a step
  bool deterministic = false;
  bool validates = true;  ///< TrainSection::validates
  double idle_share = 0;  ///< share of the sequences of each step that are empty
  /// Share of a step in which the ranks of a pipeline have nothing to compute; empty sequences count as work.
  double pipeline_idle_share = 0;
  RankPlan plan;  ///< plan of the fullest rank
  /// The model that writes summaries at validations; nullopt without summaries.
  std::optional<InferenceOptions> summaries;
  /// Memory of the model that writes summaries, during a validation, in addition to `plan`.
  MemoryUse summaries_memory;
  SnapshotPlan snapshot;           ///< copies for saves while training goes on
  std::optional<StepTime> time;    ///< time of a step; nullopt: not asked for, or no rates are known
  int64_t library_bytes = 0;       ///< device memory kept free for libraries
  std::vector<std::string> notes;  ///< decisions that differ from the config, and likely mistakes

  /// The units that are trained and saved, with their stages.
  std::vector<UnitSpec> trained_table() const;
  /// The number of elements of all parameters that training changes.
  int64_t trained_parameters() const {
    const LoraConfig& lora = step.sharding.lora;
    return lora.any() ? adapter_parameter_count(model, lora) : parameter_count(model);
  }
  FlopsPerToken flops_per_token() const {
    return training_flops_per_token(model, step.sharding.lora, step.sharding.sequence_length);
  }
  PlanRequest request(DeviceKind device) const {
    return {model, step, mesh, device, micro_batches, deterministic, validates};
  }
  /// The peak of the fullest rank, with summaries and, on a CPU, snapshots.
  MemoryUse memory() const {
    MemoryUse sum = plan.memory;
    if (!snapshot.beside_device) sum[MemoryCategory::kSnapshot] += snapshot.kept_bytes;
    return sum += summaries_memory;
  }
  /// The bytes of memory() that the run cannot do without: with checkpoint.snapshot_mib "auto", snapshots may
  /// shrink to 0.
  int64_t needed_bytes() const {
    return memory().total() -
           (snapshot.takes_the_rest && !snapshot.beside_device ? snapshot.kept_bytes : int64_t{0});
  }
  /// Whether memory() and the libraries fit into a rank's memory. True if the rank's memory is not known.
  bool fits(const RunTarget& target) const {
    return !target.device_memory_bytes || memory().total() + library_bytes <= *target.device_memory_bytes;
  }
  /// Share of a step in which ranks compute empty sequences or nothing.
  double idle_share_in_all() const { return 1 - (1 - idle_share) * (1 - pipeline_idle_share); }
  /// Operations of recomputation divided by all others: 0 to about 1/3, or 1/2 if only adapters are trained.
  double recomputed_share() const;
  /// The mesh that writes summaries. Each rank keeps its index on the tensor axis.
  MeshSizes summaries_mesh() const {
    return {.replicate = mesh.ranks() / mesh.tensor, .fsdp = 1, .tensor = mesh.tensor};
  }
};

/// Decides what depends on neither mesh nor micro-batch: model, precision, settings of the step, notes.
/// Throws Error(kUsage) if config and model do not fit, Error(kInputData) for an unknown or too small
/// vocabulary.
ResolvedRun unplanned_run(const RunConfig& config, const RunTarget& target);

/// Decides everything and plans the step. Throws like unplanned_run, Error(kResources) if the mesh does not
/// suit ranks or model, Error(kUsage) if it cannot cut batch or layers as asked, and PlanTooLarge
/// (train/plan/fitting_meshes.h) if the plan exceeds the memory.
ResolvedRun resolve_run(const RunConfig& config, const RunTarget& target);

}  // namespace ripstop
