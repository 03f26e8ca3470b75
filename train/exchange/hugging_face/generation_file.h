// ripstop_prompt.json (how to prompt the model) and generation_config.json (how it generates text).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/text/json_reader.h"
#include "train/config/run_config.h"

namespace ripstop {

struct SpecialIds {
  std::optional<int32_t> bos, eos;
  std::vector<int32_t> ends = {};  ///< further ids that end a text
};

/// The eos_token_id of config.json and of generation_config.json: one id, an ascending list of ids, or null.
JsonReader::Json eos_token_id_json(const SpecialIds& ids);

/// ripstop writes and reads this file; transformers ignores it.
inline constexpr const char* kPromptFile = "ripstop_prompt.json";

struct ExportedPrompt {
  std::string prompt_template;  ///< contains {document}
  int64_t context = 0;          ///< maximum tokens of prompt and summary together
  bool has_turns = false;       ///< the model was trained on conversations; the template is {document} alone
  bool operator==(const ExportedPrompt&) const = default;
};

std::string prompt_json(const ExportedPrompt& prompt);

/// Reads `directory`/ripstop_prompt.json; nullopt if the file is absent. Throws Error(kInputData) if it is
/// damaged or parse_template refuses the template.
std::optional<ExportedPrompt> read_prompt_json(const std::filesystem::path& directory);

/// A key of [generation] and its value as TOML: {"num_beams", "4"}.
struct GenerationValue {
  std::string key;
  std::string value;
};

struct GenerationFile {
  std::filesystem::path path;
  std::vector<GenerationValue> values;  ///< settings that ripstop supports, in the order of the file
  std::vector<std::string> ignored;     ///< keys that ripstop ignores, some with the reason
};

/// Reads `directory`/generation_config.json. Both lists are empty if the file is absent, and leave out ids of
/// special tokens, versions, the cache, null values, and settings that are off in transformers. If
/// num_beams is above 1, do_sample = true is ignored; else, if top_k is absent, do_sample = true adds top_k
/// 50, the default of transformers. Unless do_sample is true, temperature, top_k and top_p in `values` have
/// no effect. Throws Error(kInputData) if the file is no JSON object. Source: transformers,
/// generation/configuration_utils.py.
GenerationFile read_generation_file(const std::filesystem::path& directory);

/// The end tokens of a Hugging Face model.
struct EndTokens {
  std::vector<int32_t> ids;    ///< ascending and not negative; empty: no file has end tokens
  std::filesystem::path path;  ///< the file that has these ids
};

/// Reads eos_token_id, an id or a list of ids, from `directory`/generation_config.json, else from
/// config.json. Leaves out ids below 0 and from `vocabulary_size` on. Throws Error(kInputData) if a file is
/// no JSON object, or the value has another type or more than kMostEndTokens ids. Source: transformers,
/// GenerationConfig.
EndTokens read_end_tokens(const std::filesystem::path& directory, int64_t vocabulary_size);

/// The text of generation_config.json. The padding token is EOS: ripstop's models have no padding token.
std::string generation_config_json(const GenerationSection& generation, const SpecialIds& ids);

}  // namespace ripstop
