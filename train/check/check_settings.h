// The model, steps and tokens of `ripstop check`, small enough for one rank alone.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/core/words.h"
#include "train/check/check_tokens.h"
#include "train/plan/resolved_run.h"

namespace ripstop {

inline constexpr int64_t kCheckSteps = 2;

/// The micro-batches of a step on `mesh`: two for each rank of a pipeline, so that all compute at once.
inline int64_t check_micro_batches(const MeshSizes& mesh) {
  return 2 * mesh.pipeline;
}

/// The model to check: the config's model; that model with fewer layers; or a model of other sizes with the
/// config's padding, tying of embeddings and ratio of heads to key-value heads.
enum class CheckedModel { kWhole, kFewerLayers, kSmall };
template <>
inline constexpr std::array<std::string_view, 3> kWords<CheckedModel> = {"whole", "fewer_layers", "small"};

/// The model and steps of a check, valid on any mesh whose tensor and pipeline axes have the config's size
/// or 1.
struct CheckSettings {
  CheckedModel kind = CheckedModel::kWhole;
  std::string reason;  ///< why the check passed over the config's model; "" if it did not
  ModelConfig model;
  StepOptions step;                                  ///< options of a step on the mesh
  Recompute reference_recompute = Recompute::kNone;  ///< recomputation in the steps of one rank alone
  double learning_rate = 0;
  uint64_t seed = 1;
  DeviceKind device = DeviceKind::kCpu;
  bool deterministic = false;

  /// The tokens of the steps on `mesh`.
  CheckTokens tokens(const MeshSizes& mesh) const;
  /// A request for the plan of the steps on `mesh`.
  PlanRequest request(const MeshSizes& mesh) const;
  /// The tokens of the steps of one rank alone: the sequences of all data ranks of `mesh`, in other
  /// micro-batches, so that a fault that skips a micro-batch cannot skip the same sequences on both sides.
  CheckTokens reference_tokens(const MeshSizes& mesh) const;
  /// A request for the plan of the steps of one rank alone.
  PlanRequest reference_request(const MeshSizes& mesh) const;
};

struct CheckLimits {
  std::optional<int64_t> memory_bytes = {};  ///< limit of a rank's memory; nullopt: no limit
  double flops = 0;                          ///< limit of the operations of one rank alone; 0: no limit
  std::string flops_text = {};               ///< `flops` as a person gave it: "5 minutes"
  bool small = false;                        ///< the check must use the small model
};

/// Chooses the check of `run`: the config's model (in bfloat16 at most six of its layers) if one rank alone
/// can hold and compute that model within `limits`; else that model with three layers; else the small
/// model, whatever limits.flops is. In a pipeline, the model keeps a layer for each stage, if the config's
/// model has as many. Learning rate, weight decay, maximum norm and AdamW's epsilon make faults visible after
/// one update (docs/check.md); decay and clipping stay off if the run does not use them. Throws
/// Error(kResources) if even the small model exceeds limits.memory_bytes. Pure.
CheckSettings choose_check(const ResolvedRun& run, DeviceKind device, uint64_t seed,
                           const CheckLimits& limits);

/// A model, usually of a few million parameters, that `tensor` ranks cut as they cut `model`: one or two
/// key-value heads a rank, the same ratio of heads to key-value heads, the same padding of vocabulary and
/// feed-forward size. Has a layer for each stage if `model` has as many. `model` itself if that is no larger.
ModelConfig small_model(const ModelConfig& model, int64_t tensor, int64_t stages);

/// The bytes that a rank needs for the check on `mesh`: the larger of two plans, for the mesh's fullest rank
/// and for one rank alone; on a CPU, plus the bytes of KeptSteps for the units of all stages.
int64_t check_bytes(const CheckSettings& settings, const MeshSizes& mesh);

}  // namespace ripstop
