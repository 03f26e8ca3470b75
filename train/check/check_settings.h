// CheckSettings: the model, the steps and the tokens of `ripstop check`, chosen so that one rank can compute
// them alone.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/check/check_tokens.h"
#include "train/plan/resolved_run.h"

namespace ripstop {

inline constexpr int64_t kCheckSteps = 2, kCheckMicroBatches = 2;

/// The model that stands for the config's. kFewerLayers has its widths. kSmall has its ratio of heads, its
/// padding, its tied or untied embeddings, and nothing of its sizes.
enum class CheckedModel { kWhole, kFewerLayers, kSmall };
/// "whole", "fewer_layers", "small".
std::string_view to_string(CheckedModel kind);

/// The work of a check, on any mesh of the config's tensor axis or of an axis of one.
struct CheckSettings {
  CheckedModel kind = CheckedModel::kWhole;
  std::string reason;  ///< why the model is not the config's; "" if it is
  ModelConfig model;
  StepOptions step;  ///< on the mesh; has B and T
  /// Recompute of the one rank: the least that fits. It keeps what the mesh may not.
  Recompute reference_recompute = Recompute::kNone;
  double learning_rate = 0;
  uint64_t seed = 1;
  DeviceKind device = DeviceKind::kCpu;
  bool deterministic = false;

  CheckTokens tokens(const MeshSizes& mesh) const;
  /// The steps on `mesh`.
  PlanRequest request(const MeshSizes& mesh) const;
  /// The tokens of the one rank that takes the same steps: the sequences of all data ranks of `mesh`, in
  /// other micro-batches, because a step that forgets a micro-batch would forget the same one on both
  /// sides.
  CheckTokens reference_tokens(const MeshSizes& mesh) const;
  /// The steps of that rank.
  PlanRequest reference_request(const MeshSizes& mesh) const;
};

/// The bounds of a check. 0, or none: any.
struct CheckLimits {
  std::optional<int64_t> memory_bytes = {};  ///< of a rank; nullopt: not known
  double flops = 0;                          ///< that the one rank may compute, in floating-point operations
  std::string flops_text = {};               ///< the bound as a person gave it: "5 minutes"
  bool small = false;                        ///< the small model at once
};

/// The check of `run`: the config's model (in bfloat16 at most six layers of it) if one rank can hold and
/// compute it within the limits, else three layers of it, else the small one. The learning rate, the
/// weight decay, the bound of the norm and AdamW's epsilon are of sizes that make faults visible after one
/// update (docs/check.md), each on or off as in the run. Throws Error(kResources) if even the small model
/// does not fit. Pure.
CheckSettings choose_check(const ResolvedRun& run, DeviceKind device, uint64_t seed,
                           const CheckLimits& limits);

/// A model of a few million parameters at most, in most cases, that a tensor axis of `tensor` ranks cuts
/// as it cuts `model`: as many heads a rank up to two, heads and key-value heads in the same ratio,
/// vocabulary and feed-forward size with the same padding. Not larger than `model`.
ModelConfig small_model(const ModelConfig& model, int64_t tensor);

/// The bytes that a rank needs for the check on `mesh`: the larger one of both plans, and on a CPU what is
/// kept of the mesh's steps meanwhile.
int64_t check_bytes(const CheckSettings& settings, const MeshSizes& mesh);

}  // namespace ripstop
