// A directory with adapters as PEFT stores them: adapter_config.json says what they are,
// adapter_model.safetensors has their bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "data/files/file.h"
#include "model/lora.h"
#include "parallel/unit_layout.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";
/// The name of an exported base's directory in texts for people.
inline constexpr const char* kBaseExport = "exported-base";

/// The contents of an adapter_config.json.
struct PeftConfig {
  LoraConfig lora;   ///< with a rank; dropout is that of its training
  std::string base;  ///< base_model_name_or_path: where the base was, or its name on a hub; may be empty
};

/// The adapters of `text`, an adapter_config.json that messages call `name`. An absent key has the default
/// of PEFT's LoraConfig, except r, lora_alpha and target_modules, which must be there. Throws
/// Error(kInputData) with the key and what it says, if the adapters are not LoRA's, or are computed in a way
/// that ripstop does not: DoRA, ranks or scales by matrix (rank_pattern, alpha_pattern), biases, trained
/// modules beside them (modules_to_save), chosen layers, targets that are no projection of a LLaMA layer,
/// initial values that change the base (PiSSA, OLoRA, LoftQ), and any key that ripstop does not know and that
/// is not empty.
/// Source: peft, tuners/lora/config.py.
PeftConfig parse_peft_config(std::string_view text, const std::string& name);

/// parse_peft_config of DIRECTORY/adapter_config.json.
PeftConfig read_peft_config(const std::filesystem::path& directory);

/// The text of an adapter_config.json. `base` is its base_model_name_or_path, or null if it is empty.
/// parse_peft_config reads back an equal LoraConfig.
std::string peft_config_json(const LoraConfig& lora, const std::string& base);

/// "rank = 4, alpha = 8, targets = [\"q_proj\"], rslora = true": what [lora] must say for such adapters,
/// all that decides what they compute.
std::string lora_lines(const LoraConfig& lora);

/// Open adapters of a model. Their weights are not read yet. Can be moved, not copied.
struct PeftAdapter {
  std::filesystem::path directory;
  PeftConfig config;
  ModelConfig model;
  InputFile file;
  /// Keys are ripstop's names; F32, F16 or BF16. The rows of b of q_proj and k_proj are in Hugging Face's
  /// order (pretrained_row).
  std::map<std::string, StoredTensor> tensors;

  /// A hash of all of their bytes, configuration included. Reads the file. Throws Error(kStorage).
  std::string weights_hash() const;
};

/// Opens the adapters in `directory`: adapter_config.json and adapter_model.safetensors. Reads the headers
/// alone. Not collective. Throws Error(kInputData) in one line, as read_peft_config and
/// read_safetensors_header do, and if a tensor is missing, unknown, of another dtype, or of another shape
/// than `model` makes it: then the adapters are of another base. With a hint if there are only weights of
/// PyTorch. PEFT compares no base either: adapters of another model of the same sizes cannot be told.
PeftAdapter open_peft_adapter(const std::filesystem::path& directory, const ModelConfig& model);

/// Throws Error(kUsage) unless `lora`, that of a config, computes what the adapters do: the same rank, alpha,
/// targets and rslora. The dropout may be another. The hint is what to write in [lora].
void require_same_lora(const PeftAdapter& adapter, const LoraConfig& lora);

/// Opens what lora.adapter names and compares it with the model and the rest of [lora]; none if it is empty.
/// Throws Error(kUsage) if it is no directory, and as open_peft_adapter and require_same_lora.
std::optional<PeftAdapter> open_first_adapters(const LoraSection& lora, const ModelConfig& model);

/// Reads as read_stored does; the unit of `layout` is one of adapter_table of the adapters' model.
void read_peft(const PeftAdapter& adapter, const UnitLayout& layout, int64_t begin, int64_t end, float* to);

/// PEFT's name of one of ripstop's adapters: "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"
/// of "layers.3.attention.wq.lora_A.weight".
std::string peft_name(const std::string& name);

}  // namespace ripstop
