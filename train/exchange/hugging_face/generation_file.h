// generation_config.json of a model of Hugging Face, as settings of [generation].
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace ripstop {

/// A key of [generation] and its value as TOML: {"num_beams", "4"}.
struct GenerationValue {
  std::string key;
  std::string value;
};

/// What a generation_config.json says.
struct GenerationFile {
  std::filesystem::path path;
  std::vector<GenerationValue> values;  ///< those that ripstop has, in the order of the file
  std::vector<std::string> ignored;     ///< the other keys, with the reason if there is one to tell
};

/// Reads `directory`/generation_config.json; no values if there is none. A key that says what every model
/// says anyway (ids of special tokens, versions, null) is in neither list. With do_sample, a top_k that is
/// absent is 50, as it is there; temperature, top_k and top_p without do_sample are taken and change nothing.
/// Beams together with sampling are read as beams. Throws Error(kInputData) if the file is no JSON object.
/// Source: transformers, generation/configuration_utils.py.
GenerationFile read_generation_file(const std::filesystem::path& directory);

}  // namespace ripstop
