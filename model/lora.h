// Low-rank adapters (LoRA): a frozen model whose matrices have small trained ones beside them. The sizes of
// adapters and the table of their parameters. model/adapters.h computes with them.
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

/// Hugging Face's names of the matrices.
inline constexpr std::array<std::string_view, 7> kLoraTargets{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                              "gate_proj", "up_proj", "down_proj"};

/// The adapters of a model. Every target has them in every layer: instead of w [O, I] it computes with
///
///   w + scale * b a,  a [rank, I], b [O, rank],  scale = alpha / rank, or alpha / sqrt(rank) with rslora
///
/// where only a and b are trained. Source: arXiv:2106.09685; rank-stabilized, arXiv:2312.03732.
struct LoraConfig {
  int64_t rank = 0;    ///< 0: there are no adapters, and the model itself is trained
  double alpha = 0;    ///< above 0
  double dropout = 0;  ///< probability in [0, 1) that training drops an element of an adapter's input
  bool rslora = false;
  /// By LoraTarget: those of attention, unless others are given.
  std::array<bool, kLoraTargets.size()> targets{true, true, true, true, false, false, false};

  /// Hugging Face's names of `targets`, in the order of kLoraTargets.
  std::vector<std::string_view> target_names() const;
  bool any() const { return rank > 0; }
  bool has(LoraTarget target) const { return targets[static_cast<size_t>(target)]; }
  double scale() const;
  bool operator==(const LoraConfig&) const = default;
};

/// "rank 16, alpha 32 (rslora), dropout 0.05, of q_proj, v_proj".
std::string adapters_text(const LoraConfig& lora);

/// Throws Error(kUsage) that names the first value of `lora` that is impossible for the model: a rank above
/// the smaller side of a target's matrix, an alpha that is not a finite number above 0, a dropout outside of
/// [0, 1), or no target. Does nothing without adapters. The model's sizes must be valid.
void validate(const LoraConfig& lora, const ModelConfig& model);

/// The adapter of one logical matrix.
struct AdapterSpec {
  LoraTarget target = LoraTarget::kQuery;
  int64_t layer = 0;
  ParameterSpec matrix;  ///< w, as parameter_table has it
  /// The adapter's matrices in ripstop's order of rows: b's rows are those of w. The tensor axis cuts them as
  /// w, so that every rank's slice of w has its slice of b a beside it: of a matrix that is cut by rows it
  /// cuts b by rows, of one that is cut by columns it cuts a by columns. The other one is on all ranks.
  ParameterSpec a, b;
};

/// Elements of all adapters.
int64_t adapter_parameter_count(const ModelConfig& model, const LoraConfig& lora);

/// FLOPs like training_flops_per_token of the model alone. With adapters, A of their elements, P counts 4
/// times instead of 6, because no gradient of a frozen weight is computed, and A counts 6 times. The sizes
/// must be valid.
FlopsPerToken training_flops_per_token(const ModelConfig& model, const LoraConfig& lora,
                                       int64_t sequence_length);

/// "layers.3.attention.wq.lora_A.weight" of "layers.3.attention.wq.weight" and 'A'.
std::string adapter_name(const std::string& matrix, char letter);
/// Whether a parameter of that name belongs to an adapter.
bool is_adapter(std::string_view parameter);

/// All adapters, by layer and then in the order of kLoraTargets; none without adapters. a begins with uniform
/// values between -1 / sqrt(I) and 1 / sqrt(I) and b with zeros, as peft's.
std::vector<AdapterSpec> adapter_specs(const ModelConfig& model, const LoraConfig& lora);

/// A unit "layers.3.lora" for each layer, beside its unit of parameter_table; none without adapters. The as
/// of matrices that read one input lie in one tensor, and so do their bs, in the order of the matrices. The
/// tensors of a unit, as far as there are such targets: a of q|k|v, b of o, a of gate|up, b of down, then b
/// of q|k|v, a of o, b of gate|up, a of down.
std::vector<UnitSpec> adapter_table(const ModelConfig& model, const LoraConfig& lora);

/// The units that training changes and checkpoints hold: those of the adapters, or the model's without any.
std::vector<UnitSpec> trained_table(const ModelConfig& model, const LoraConfig& lora);

/// All units of a rank: parameter_table, frozen if there are adapters, and then adapter_table.
std::vector<UnitSpec> unit_table(const ModelConfig& model, const LoraConfig& lora);

}  // namespace ripstop
