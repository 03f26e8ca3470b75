// Two files in a directory of Hugging Face: ripstop_prompt.json, how its model is prompted, and
// generation_config.json, how it generates.
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

inline constexpr const char* kPromptFile = "ripstop_prompt.json";

/// How a model was prompted in its training.
struct ExportedPrompt {
  std::string prompt_template;  ///< contains {document}
  int64_t context = 0;          ///< the most tokens of prompt and summary together
  bool operator==(const ExportedPrompt&) const = default;
};

/// The text of ripstop_prompt.json.
std::string prompt_json(const ExportedPrompt& prompt);

/// Reads `directory`/ripstop_prompt.json; nullopt without such a file: ripstop alone writes it. Throws
/// Error(kInputData) if the file is damaged or parse_template refuses the template.
std::optional<ExportedPrompt> read_prompt_json(const std::filesystem::path& directory);

/// A key of [generation] and its value as TOML: {"num_beams", "4"}.
struct GenerationValue {
  std::string key;
  std::string value;
};

/// The settings in a generation_config.json.
struct GenerationFile {
  std::filesystem::path path;
  std::vector<GenerationValue> values;  ///< settings that ripstop has, in the order of the file
  std::vector<std::string> ignored;     ///< keys that ripstop ignores, some with the reason
};

/// Reads `directory`/generation_config.json; without such a file both lists are empty. Neither list has keys
/// that change nothing here (ids of special tokens, versions, null). With do_sample and no top_k, top_k is
/// 50, the default of transformers. Without do_sample, temperature, top_k and top_p are taken and change
/// nothing. With beams, do_sample is ignored. Throws Error(kInputData) if the file is no JSON object.
/// Source: transformers, generation/configuration_utils.py.
GenerationFile read_generation_file(const std::filesystem::path& directory);

/// The text of generation_config.json. The padding token is EOS: training used no other token for it.
std::string generation_config_json(const GenerationSection& generation, const SpecialIds& ids);

}  // namespace ripstop
