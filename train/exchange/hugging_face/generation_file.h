// Two files in a directory of Hugging Face: ripstop_prompt.json says how the model is prompted,
// generation_config.json how the model generates text.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace ripstop {

/// Ids of a tokenizer's special tokens; nullopt without a tokenizer.
struct SpecialIds {
  std::optional<int32_t> bos, eos;
};

/// Says how to prompt the model; ripstop writes and reads this file, transformers ignores it.
inline constexpr const char* kPromptFile = "ripstop_prompt.json";

/// How a model was prompted in its training.
struct ExportedPrompt {
  std::string prompt_template;  ///< contains {document}
  int64_t context = 0;          ///< the most tokens of prompt and summary together
  bool operator==(const ExportedPrompt&) const = default;
};

/// The text of ripstop_prompt.json.
std::string prompt_json(const ExportedPrompt& prompt);

/// Reads `directory`/ripstop_prompt.json; nullopt if the file is absent, since no other program writes it.
/// Throws Error(kInputData) if the file is damaged or parse_template refuses the template.
std::optional<ExportedPrompt> read_prompt_json(const std::filesystem::path& directory);

/// A key of [generation] and its value as TOML: {"num_beams", "4"}.
struct GenerationValue {
  std::string key;
  std::string value;
};

/// The settings in a generation_config.json.
struct GenerationFile {
  std::filesystem::path path;
  std::vector<GenerationValue> values;  ///< settings that ripstop supports, in the order of the file
  std::vector<std::string> ignored;     ///< keys that ripstop ignores, some with the reason
};

/// Reads `directory`/generation_config.json; if the file is absent, both lists are empty. Neither list has
/// keys without an effect in ripstop: ids of special tokens, versions, null values. If do_sample is true and
/// the file has no top_k, top_k becomes 50, the default of transformers. If do_sample is not true, `values`
/// may have temperature, top_k and top_p, but they have no effect. If num_beams is above 1, do_sample = true
/// is ignored. Throws Error(kInputData) if the file is no JSON object.
/// Source: transformers, generation/configuration_utils.py.
GenerationFile read_generation_file(const std::filesystem::path& directory);

/// The text of generation_config.json. The padding token is EOS, since ripstop's models have no other one.
std::string generation_config_json(const GenerationSection& generation, const SpecialIds& ids);

}  // namespace ripstop
