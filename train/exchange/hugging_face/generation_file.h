// How the model in a directory of Hugging Face is prompted, and how it generates: ripstop_prompt.json and
// generation_config.json.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ripstop {

inline constexpr const char* kPromptFile = "ripstop_prompt.json";

/// How a model was prompted in its training.
struct ExportedPrompt {
  std::string prompt_template;  ///< with {document}
  int64_t context = 0;          ///< tokens of prompt and summary together, at most
  bool operator==(const ExportedPrompt&) const = default;
};

/// The text of ripstop_prompt.json.
std::string prompt_json(const ExportedPrompt& prompt);

/// Reads `directory`/ripstop_prompt.json; nullopt if there is none, as in models that ripstop has not
/// exported. Throws Error(kInputData) if it is damaged, also if its template is none (parse_template).
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
  std::vector<std::string> ignored;     ///< the other keys, with the reason if there is one to tell
};

/// Reads `directory`/generation_config.json; no values if there is none. A key that says what every model
/// says anyway (ids of special tokens, versions, null) is in neither list. With do_sample, a top_k that is
/// absent is 50, as it is there; temperature, top_k and top_p without do_sample are taken and change nothing.
/// Beams together with sampling are read as beams. Throws Error(kInputData) if the file is no JSON object.
/// Source: transformers, generation/configuration_utils.py.
GenerationFile read_generation_file(const std::filesystem::path& directory);

}  // namespace ripstop
