// LoRA adapters in a directory of PEFT: adapter_config.json, and adapter_model.safetensors or
// adapter_model.bin.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"
#include "model/lora.h"
#include "parallel/unit_layout.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/stored_elements.h"
#include "train/exchange/hugging_face/zip_directory.h"

namespace ripstop {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";
/// The directory of an exported base, in commands that ripstop suggests.
inline constexpr const char* kBaseExport = "exported-base";

/// Parses `text`, an adapter_config.json that messages call `name`. The dropout has an effect only in
/// training. peft_type, r (at least 1), lora_alpha and target_modules must be given; other absent keys have
/// the default of PEFT's LoraConfig. Throws Error(kInputData), with key and value, if a number is impossible,
/// or the adapters are not LoRA of a causal language model or need something that ripstop does not compute:
/// DoRA, a rank or scale for each matrix (rank_pattern, alpha_pattern), biases, other trained modules
/// (modules_to_save), adapters only on some layers, targets that are no projection of a LLaMA layer, initial
/// values that may change the base (PiSSA, OLoRA, LoftQ), or an unknown key that is not empty. Source: peft,
/// tuners/lora/config.py.
LoraConfig parse_peft_config(std::string_view text, const std::string& name);

LoraConfig read_peft_config(const std::filesystem::path& directory);

/// The text of an adapter_config.json; with an empty `base`, base_model_name_or_path is null.
/// parse_peft_config reads back an equal LoraConfig.
std::string peft_config_json(const LoraConfig& lora, const std::string& base);

/// The settings in [lora] that decide what adapters compute: "rank = 4, alpha = 8, targets = [\"q_proj\"],
/// rslora = true".
std::string lora_lines(const LoraConfig& lora);

/// Adapters whose file is open and whose headers have been read. Can be moved, not copied.
struct PeftAdapter {
  std::filesystem::path directory;
  LoraConfig lora;
  ModelConfig model;
  InputFile file;
  NamedTensors tensors;                  ///< by ripstop's names (take_parameters)
  std::vector<ZipMember> storages = {};  ///< storages of a .bin file
  std::string wrappers = {};             ///< the prefix that take_off_wrappers took off the names

  /// Reads the whole file, and returns a hash of it and of lora_lines. Throws Error(kInputData) if a storage
  /// does not have its CRC-32, and what InputFile::read_at throws.
  std::string weights_hash() const;
};

/// Opens the adapters in `directory`; reads only headers. Not collective. As in PEFT, adapters of another
/// model of the same sizes are not detected. Reads safetensors if both it and .bin exist. Throws what
/// read_peft_config and read_weights_header throw, and Error(kInputData) if a tensor is missing, unknown, not
/// F32, F16 or BF16, or not as `model` needs, if the rank is too high, or if a file is missing.
PeftAdapter open_peft_adapter(const std::filesystem::path& directory, const ModelConfig& model);

/// Opens the adapters in lora.adapter; nullopt if lora.adapter is empty. Throws Error(kUsage) if lora.adapter
/// is a run or no directory, or if the adapters' rank, alpha, rslora or targets differ from `lora`, and what
/// open_peft_adapter throws.
std::optional<PeftAdapter> open_first_adapters(const LoraSection& lora, const ModelConfig& model);

/// Calls read_stored for the adapters' tensors. `layout`: the layout of a unit of adapter_table.
void read_peft(const PeftAdapter& adapter, const UnitLayout& layout, int64_t begin, int64_t end, float* to);

}  // namespace ripstop
