// ResolvedRun: a config with every "auto" decided for the ranks, the data set and the device at hand.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/generate/inference_model.h"
#include "train/plan/rank_plan.h"

namespace ripstop {

/// What a run is resolved for.
struct RunTarget {
  int64_t ranks = 1;
  DeviceKind device = DeviceKind::kCpu;
  bool fast_bfloat16 = true;  ///< the device multiplies bfloat16 at least as fast as float32
  /// For one rank and the libraries that it uses (library_bytes); none: not known, nothing is refused.
  std::optional<int64_t> device_memory_bytes;
  int64_t dataset_vocabulary = 0;  ///< 0: no data set at hand, model.vocab_size counts
};

/// What training will do, in numbers.
struct ResolvedRun {
  ModelConfig model;
  MeshSizes mesh;
  StepOptions step;
  int64_t micro_batches = 1;   ///< of every data rank, in every step
  bool deterministic = false;  ///< run.deterministic
  double idle_share = 0;       ///< of the sequences that ranks compute in a step, those that are always empty
  RankPlan plan;               ///< of the fullest rank
  /// The model that writes summaries at validations, where config.generation asks for them, and what it takes
  /// beside `plan` while it lives.
  std::optional<InferenceOptions> summaries;
  MemoryUse summaries_memory;
  int64_t library_bytes = 0;       ///< of the device's memory, kept free of the plan
  std::vector<std::string> notes;  ///< what was decided differently from what was asked, for people

  PlanRequest request(DeviceKind device) const {
    return {model, step, mesh, device, micro_batches, deterministic};
  }
  /// What a rank holds at most.
  MemoryUse memory() const {
    MemoryUse sum = plan.memory;
    return sum += summaries_memory;
  }
  /// The mesh that writes summaries: every rank keeps its place on the tensor axis.
  MeshSizes summaries_mesh() const { return {mesh.replicate * mesh.fsdp, 1, mesh.tensor}; }
};

/// Decides mesh, micro-batch and precision, and plans the step. Throws Error(kUsage) for a batch or sequence
/// that cannot be cut, Error(kInputData) where the data set's vocabulary is larger than the model's, and
/// Error(kResources) where the plan exceeds the memory, with the meshes and micro-batches that fit.
ResolvedRun resolve_run(const RunConfig& config, const RunTarget& target);

/// "weights 1.2 GiB, ...": the plan of the fullest rank in a few aligned lines.
std::string plan_text(const ResolvedRun& run, const std::optional<int64_t>& device_memory_bytes);

}  // namespace ripstop
