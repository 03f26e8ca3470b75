// adapter_config.json, in which PEFT says what the adapters beside it are.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "model/lora.h"

namespace ripstop {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";
/// What texts for people call the directory of an exported base.
inline constexpr const char* kBaseExport = "exported-base";

/// What an adapter_config.json says.
struct PeftConfig {
  LoraConfig lora;   ///< with a rank; dropout is that of its training
  std::string base;  ///< base_model_name_or_path: where the base was, or its name on a hub; may be empty
};

/// The adapters of `text`, an adapter_config.json that messages call `name`. What is absent has the default
/// of PEFT's LoraConfig, except r, lora_alpha and target_modules, which must be there. Throws
/// Error(kInputData) with the key and what it says, if the adapters are not LoRA's, or are computed in a way
/// that ripstop does not: DoRA, ranks or scales by matrix (rank_pattern, alpha_pattern), biases, trained
/// modules beside them (modules_to_save), chosen layers, targets that are no projection of a LLaMA layer,
/// initial values that change the base (PiSSA, OLoRA, LoftQ), and any key that ripstop does not know and that
/// is not empty.
/// Source: peft, tuners/lora/config.py.
PeftConfig parse_peft_config(std::string_view text, const std::string& name);

/// As above, of DIRECTORY/adapter_config.json.
PeftConfig read_peft_config(const std::filesystem::path& directory);

/// The text of an adapter_config.json. `base` is its base_model_name_or_path, or null if it is empty.
/// parse_peft_config reads back an equal LoraConfig.
std::string peft_config_json(const LoraConfig& lora, const std::string& base);

/// "rank = 4, alpha = 8, targets = [\"q_proj\"], rslora = true": what [lora] must say for such adapters,
/// all that decides what they compute.
std::string lora_lines(const LoraConfig& lora);

}  // namespace ripstop
