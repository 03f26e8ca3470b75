// The sizes and parameters of low-rank adapters (LoRA). model/adapters.h computes with them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/parameter.h"

namespace ripstop {

/// The matrices of a layer that may have an adapter, in the order of kLoraTargets.
enum class LoraTarget : uint8_t { kQuery, kKey, kValue, kOutput, kGate, kUp, kDown };

/// Hugging Face's names, indexed by LoraTarget.
inline constexpr std::array<std::string_view, 7> kLoraTargets{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                              "gate_proj", "up_proj", "down_proj"};

/// The adapters of a model. In every layer, every target w [O, I] is replaced by
///
///   w + scale * b a,  a [rank, I], b [O, rank],  scale = alpha / rank, or alpha / sqrt(rank) with rslora
///
/// and only `a` and `b` are trained. Source: arXiv:2106.09685; rank-stabilized, arXiv:2312.03732.
struct LoraConfig {
  int64_t rank = 0;     ///< 0: no adapters; the model itself is trained
  double alpha = 0;     ///< must be above 0
  double dropout = 0;   ///< probability in [0, 1) that training drops an element of an adapter's input
  bool rslora = false;  ///< rank-stabilized: scale is alpha / sqrt(rank)
  /// Indexed by LoraTarget. By default the four matrices of attention have adapters.
  std::array<bool, kLoraTargets.size()> targets{true, true, true, true, false, false, false};

  std::vector<std::string_view> target_names() const;
  bool any() const { return rank > 0; }
  bool has(LoraTarget target) const { return targets[static_cast<size_t>(target)]; }
  double scale() const;
  bool operator==(const LoraConfig&) const = default;
};

/// A text for the user: "rank 16, alpha 32 (rslora), dropout 0.05, of q_proj, v_proj".
std::string adapters_text(const LoraConfig& lora);

/// Throws Error(kUsage), whose message names the first impossible value of `lora`:
/// - an alpha that is not a finite number above 0;
/// - a dropout outside of [0, 1);
/// - no target;
/// - a rank above the smaller side of a target's matrix.
/// Does nothing without adapters. The model's sizes must be valid.
void validate(const LoraConfig& lora, const ModelConfig& model);

struct AdapterSpec {
  LoraTarget target = LoraTarget::kQuery;
  int64_t layer = 0;     ///< from 0
  ParameterSpec matrix;  ///< w, as parameter_table has it
  /// `b` has the rows of w, in Meta's order (see rope()). The tensor axis cuts `b` by rows if it cuts w by
  /// rows, and `a` by columns if it cuts w by columns, so each rank's slice of `b a` matches its slice of w.
  /// The other matrix is replicated.
  ParameterSpec a, b;
};

/// Elements of all adapters.
int64_t adapter_parameter_count(const ModelConfig& model, const LoraConfig& lora);

/// Floating-point operations of training on one token: training_flops_per_token of the model; with adapters
/// 4 P instead of 6 P, since frozen weights have no gradient, plus 6 for each element of the adapters. The
/// sizes must be valid.
FlopsPerToken training_flops_per_token(const ModelConfig& model, const LoraConfig& lora,
                                       int64_t sequence_length);

/// Returns "layers.3.attention.wq.lora_A.weight" for "layers.3.attention.wq.weight" and 'A'.
std::string adapter_name(const std::string& matrix, char letter);
bool is_adapter(std::string_view parameter);

/// All adapters, by layer and then in the order of kLoraTargets. Initial values as in peft: `a` is uniform
/// between -1 / sqrt(I) and 1 / sqrt(I), `b` is zero.
std::vector<AdapterSpec> adapter_specs(const ModelConfig& model, const LoraConfig& lora);

/// One unit "layers.3.lora" for the adapters of each layer; empty without adapters. Matrices that read one
/// input (q|k|v, gate|up) have their `a` in one tensor and their `b` in another. Tensors of a unit: `a` of
/// q|k|v, `b` of o, `a` of gate|up, `b` of down, then `b` of q|k|v, `a` of o, `b` of gate|up, `a` of down. A
/// tensor without a target is left out.
std::vector<UnitSpec> adapter_table(const ModelConfig& model, const LoraConfig& lora);

/// The units that training changes and checkpoints hold: adapter_table, or parameter_table without adapters.
std::vector<UnitSpec> trained_table(const ModelConfig& model, const LoraConfig& lora);

/// All units: parameter_table, which is frozen if there are adapters, then adapter_table.
std::vector<UnitSpec> unit_table(const ModelConfig& model, const LoraConfig& lora);

}  // namespace ripstop
