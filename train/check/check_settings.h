// CheckSettings: the model, the steps and the tokens of `ripstop check`, small enough for one rank alone.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/check/check_tokens.h"
#include "train/plan/resolved_run.h"

namespace ripstop {

inline constexpr int64_t kCheckSteps = 2, kCheckMicroBatches = 2;

/// The model that a check takes: the config's; the config's with fewer layers; or a small model with the
/// config's ratio of heads, padding and tied or untied embeddings, but other sizes.
enum class CheckedModel { kWhole, kFewerLayers, kSmall };
/// "whole", "fewer_layers", "small".
std::string_view to_string(CheckedModel kind);

/// The work of a check, on any mesh whose tensor axis has the config's size or 1.
struct CheckSettings {
  CheckedModel kind = CheckedModel::kWhole;
  std::string reason;  ///< why the model is not the config's; "" if it is
  ModelConfig model;
  StepOptions step;                                  ///< on the mesh, with B and T
  Recompute reference_recompute = Recompute::kNone;  ///< of the rank alone: the least that fits
  double learning_rate = 0;
  uint64_t seed = 1;
  DeviceKind device = DeviceKind::kCpu;
  bool deterministic = false;

  CheckTokens tokens(const MeshSizes& mesh) const;
  /// The steps on `mesh`.
  PlanRequest request(const MeshSizes& mesh) const;
  /// The tokens of one rank alone: the sequences of all data ranks of `mesh`, cut into other micro-batches.
  /// If both sides had the same micro-batches, a step that skips one would skip the same one on both.
  CheckTokens reference_tokens(const MeshSizes& mesh) const;
  /// The steps of one rank alone that correspond to the steps on `mesh`.
  PlanRequest reference_request(const MeshSizes& mesh) const;
};

/// The bounds of a check.
struct CheckLimits {
  std::optional<int64_t> memory_bytes = {};  ///< of a rank; nullopt: no bound
  double flops = 0;                          ///< floating-point operations of the rank alone; 0: no bound
  std::string flops_text = {};               ///< `flops` as a person gave it: "5 minutes"
  bool small = false;                        ///< take the small model at once
};

/// The check of `run`: the config's model (in bfloat16 at most six of its layers) if one rank alone can hold
/// and compute it within `limits`, else three of its layers, else the small model. Learning rate, weight
/// decay, maximum norm and AdamW's epsilon have values that make faults visible after one update
/// (docs/check.md); decay and clipping are off if the run has them off. Throws Error(kResources) if even the
/// small model does not fit. Pure.
CheckSettings choose_check(const ResolvedRun& run, DeviceKind device, uint64_t seed,
                           const CheckLimits& limits);

/// A model, mostly of a few million parameters, that a tensor axis of `tensor` ranks cuts as it cuts `model`:
/// one or two key-value heads a rank, the same ratio of heads to key-value heads, the same padding of
/// vocabulary and feed-forward size. Never larger than `model`.
ModelConfig small_model(const ModelConfig& model, int64_t tensor);

/// The bytes that a rank needs for the check on `mesh`: the larger of the plans on the mesh and alone, and on
/// a CPU the copies of KeptSteps, too.
int64_t check_bytes(const CheckSettings& settings, const MeshSizes& mesh);

}  // namespace ripstop
