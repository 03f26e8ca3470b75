#include "train/exchange/hugging_face/generation_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "data/dataset/prompt_template.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "train/config/config_entries.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

constexpr int64_t kMostGenerationBytes = int64_t{1} << 20;
constexpr size_t kMostTemplateBytes = size_t{1} << 20;
constexpr int64_t kMostPromptBytes = int64_t{8} << 20;  // a byte of the template may take six

constexpr std::array<std::string_view, 10> kTaken = {
    "num_beams",      "length_penalty", "early_stopping", "no_repeat_ngram_size",
    "min_new_tokens", "max_new_tokens", "do_sample",      "temperature",
    "top_k",          "top_p"};

// Keys that change nothing here: ripstop ends at its tokenizer's EOS, and always has a cache.
constexpr std::array<std::string_view, 6> kOfEveryModel = {"bos_token_id", "eos_token_id",
                                                           "pad_token_id", "_from_model_config",
                                                           "use_cache",    "transformers_version"};

// The JSON value as a config's, so that the table of config keys can check it.
ConfigValue config_value(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return {};
}

// Sets `key` of `config` if the config's table of keys accepts the value. Returns why not, or "".
std::string take(const std::string& key, const Json& json, RunConfig& config) {
  const ConfigKey& row = *find_config_key("generation", key);
  try {
    assign_value(
        {.key = &row, .value = config_value(json), .shown = text_of_json(json).substr(0, 80), .where = key},
        config);
  } catch (const Error& error) {
    return in_one_line(error.what());
  }
  return "";
}

}  // namespace

std::string prompt_json(const ExportedPrompt& prompt) {
  return text_of_json({{"template", prompt.prompt_template}, {"context", prompt.context}}, 2) + "\n";
}

std::optional<ExportedPrompt> read_prompt_json(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPromptFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  const JsonReader reader(path.string(), ExitCode::kInputData);
  const Json json = reader.parse(read_plain_file(path, kMostPromptBytes, ExitCode::kInputData));
  ExportedPrompt prompt{.prompt_template = reader.text(json, "template", kMostTemplateBytes),
                        .context = reader.integer(json, "context", 1, int64_t{1} << 40)};
  try {
    (void)parse_template(prompt.prompt_template);
  } catch (const Error& refused) {
    reader.refuse("{}", refused.what());
  }
  return prompt;
}

GenerationFile read_generation_file(const fs::path& directory) {
  GenerationFile file{.path = directory / "generation_config.json", .values = {}, .ignored = {}};
  std::error_code error;
  if (!fs::exists(file.path, error) && !error) return file;
  const JsonReader reader(file.path.string(), ExitCode::kInputData);
  const Json json = reader.parse(read_plain_file(file.path, kMostGenerationBytes, ExitCode::kInputData));
  RunConfig config;
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || std::ranges::count(kOfEveryModel, key) > 0) continue;
    if (key == "max_length")
      file.ignored.emplace_back("max_length (it counts the prompt, too; max_new_tokens does not)");
    else if (std::ranges::count(kTaken, key) == 0)
      file.ignored.push_back(in_one_line(key.substr(0, 80)));
    else if (const std::string problem = take(key, value, config); !problem.empty())
      file.ignored.push_back(problem);
    else
      file.values.push_back({key, value_as_toml(*find_config_key("generation", key), config)});
  }
  const auto is_taken = [&](std::string_view key) {
    return std::ranges::any_of(file.values, [&](const GenerationValue& value) { return value.key == key; });
  };
  if (config.generation.do_sample && config.generation.num_beams > 1) {
    std::erase_if(file.values, [](const GenerationValue& value) { return value.key == "do_sample"; });
    file.ignored.emplace_back("do_sample (ripstop's beams draw nothing)");
  } else if (config.generation.do_sample && !is_taken("top_k")) {
    file.values.push_back({"top_k", "50"});
  }
  return file;
}

}  // namespace ripstop
