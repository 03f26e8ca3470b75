#include "train/exchange/hugging_face/generation_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "train/config/config_entries.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

constexpr int64_t kMostGenerationBytes = int64_t{1} << 20;

constexpr std::array<std::string_view, 10> kTaken = {
    "num_beams",      "length_penalty", "early_stopping", "no_repeat_ngram_size",
    "min_new_tokens", "max_new_tokens", "do_sample",      "temperature",
    "top_k",          "top_p"};

// They change nothing here: ripstop ends at its tokenizer's EOS, and always has a cache.
constexpr std::array<std::string_view, 6> kOfEveryModel = {"bos_token_id", "eos_token_id",
                                                           "pad_token_id", "_from_model_config",
                                                           "use_cache",    "transformers_version"};

// A JSON value as one of a config, so that the table of config keys can check it.
ConfigValue config_value(const ConfigKey& key, const Json& json) {
  RunConfig any;
  const Field field = key.field(any);
  // Words of a choice; Python has true and false among them.
  if (json.is_boolean() && std::holds_alternative<ChoiceField>(field))
    return std::string(json.get<bool>() ? "true" : "false");
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number() && std::holds_alternative<double*>(field)) return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return {};
}

bool is_in(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Takes what the config's table of keys accepts into `config`. Returns why not, or "".
std::string take(const std::string& key, const Json& json, RunConfig& config) {
  const ConfigKey& row = *find_config_key("generation", key);
  try {
    const std::string shown = json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
    assign_value({.key = &row, .value = config_value(row, json), .shown = shown, .where = key}, config);
  } catch (const Error& error) {
    return in_one_line(error.what());
  }
  return "";
}

void add(const std::string& key, RunConfig& config, std::vector<GenerationValue>& values) {
  values.push_back({key, value_as_toml(*find_config_key("generation", key), config)});
}

}  // namespace

GenerationFile read_generation_file(const fs::path& directory) {
  GenerationFile file{.path = directory / "generation_config.json", .values = {}, .ignored = {}};
  std::error_code error;
  if (!fs::exists(file.path, error) && !error) return file;
  const JsonReader reader(file.path.string(), ExitCode::kInputData);
  const Json json = reader.parse(read_plain_file(file.path, kMostGenerationBytes, ExitCode::kInputData));
  RunConfig config;
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || is_in(kOfEveryModel, key)) continue;
    if (key == "max_length")
      file.ignored.emplace_back("max_length (it counts the prompt, too; max_new_tokens does not)");
    else if (!is_in(kTaken, key))
      file.ignored.push_back(in_one_line(key.substr(0, 80)));
    else if (const std::string problem = take(key, value, config); !problem.empty())
      file.ignored.push_back(problem);
    else
      add(key, config, file.values);
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
