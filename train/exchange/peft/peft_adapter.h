// A directory with LoRA adapters of PEFT: adapter_config.json has their settings, adapter_model.safetensors
// their weights.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/files/file.h"
#include "model/lora.h"
#include "parallel/unit_layout.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";
/// The directory of an exported base, in commands that ripstop suggests.
inline constexpr const char* kBaseExport = "exported-base";

/// The contents of an adapter_config.json.
struct PeftConfig {
  LoraConfig lora;   ///< has a rank; dropout is the one of the training
  std::string base;  ///< base_model_name_or_path: where the base was, or its name on a hub; may be empty
};

/// Parses `text`, an adapter_config.json that messages call `name`. An absent key has the default of PEFT's
/// LoraConfig, except r, lora_alpha and target_modules, which must be there. Throws Error(kInputData) with
/// the key and its value if the adapters are not LoRA adapters, or need what ripstop does not compute: DoRA,
/// a rank or scale for each matrix (rank_pattern, alpha_pattern), biases, other trained modules
/// (modules_to_save), adapters on some layers alone, targets that are no projection of a LLaMA layer, initial
/// values that change the base (PiSSA, OLoRA, LoftQ), or any unknown key that is not empty.
/// Source: peft, tuners/lora/config.py.
PeftConfig parse_peft_config(std::string_view text, const std::string& name);

/// parse_peft_config of DIRECTORY/adapter_config.json.
PeftConfig read_peft_config(const std::filesystem::path& directory);

/// The text of an adapter_config.json. An empty `base` gives a base_model_name_or_path of null.
/// parse_peft_config reads back an equal LoraConfig.
std::string peft_config_json(const LoraConfig& lora, const std::string& base);

/// "rank = 4, alpha = 8, targets = [\"q_proj\"], rslora = true": the settings in [lora] that decide what
/// adapters compute.
std::string lora_lines(const LoraConfig& lora);

/// Open adapters of a model, whose headers are read and whose weights are not. Can be moved, not copied.
struct PeftAdapter {
  std::filesystem::path directory;
  PeftConfig config;
  ModelConfig model;
  InputFile file;
  NamedTensors tensors;  ///< of take_parameters

  /// A hash of all weights and of lora_lines. Reads the whole file. Throws Error(kStorage).
  std::string weights_hash() const;
};

/// Opens the adapters in `directory`: adapter_config.json and adapter_model.safetensors. Reads the headers
/// alone. Not collective. Throws Error(kInputData) as read_peft_config and read_safetensors_header do, and if
/// a tensor is missing, unknown, of another dtype, or of another shape than `model` gives it. If there are
/// only weights of PyTorch, the hint says how to convert them. The adapters of another model with the same
/// sizes are not detected, as in PEFT.
PeftAdapter open_peft_adapter(const std::filesystem::path& directory, const ModelConfig& model);

/// Opens the adapters at lora.adapter; nullopt if it is empty. Throws Error(kUsage) if it is no directory, or
/// if the adapters have another rank, alpha, rslora or other targets than [lora] (the dropout may differ),
/// and as open_peft_adapter.
std::optional<PeftAdapter> open_first_adapters(const LoraSection& lora, const ModelConfig& model);

/// Calls read_stored for the adapters' tensors. The unit of `layout` is one of adapter_table.
void read_peft(const PeftAdapter& adapter, const UnitLayout& layout, int64_t begin, int64_t end, float* to);

}  // namespace ripstop
