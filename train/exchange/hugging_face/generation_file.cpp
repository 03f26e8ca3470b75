#include "train/exchange/hugging_face/generation_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/dataset/prompt_template.h"
#include "data/files/whole_file.h"
#include "data/text/json_struct.h"
#include "data/text/utf8.h"
#include "train/config/config_entries.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

constexpr int64_t kMostGenerationBytes = int64_t{1} << 20;
constexpr size_t kMostTemplateBytes = size_t{1} << 20;
constexpr int64_t kMostPromptBytes = int64_t{8} << 20;  // JSON may write one byte as six characters: \u0000

// Keys that are skipped: read_end_tokens() reads eos_token_id, and ripstop always uses a cache.
constexpr std::array<std::string_view, 6> kOfEveryModel = {"bos_token_id", "eos_token_id",
                                                           "pad_token_id", "_from_model_config",
                                                           "use_cache",    "transformers_version"};

// Settings of transformers that ripstop does not have, each with the value that does nothing.
constexpr std::pair<std::string_view, double> kWithoutEffect[] = {
    {"repetition_penalty", 1}, {"encoder_repetition_penalty", 1},
    {"diversity_penalty", 0},  {"typical_p", 1},
    {"epsilon_cutoff", 0},     {"eta_cutoff", 0},
    {"num_beam_groups", 1},    {"num_return_sequences", 1},
    {"min_length", 0},         {"encoder_no_repeat_ngram_size", 0}};

// Whether `key`, which ripstop does not have, changes no text of transformers: a switch that is off, or a
// setting of kWithoutEffect with its value.
bool is_without_effect(const std::string& key, const Json& value) {
  return value == false || std::ranges::any_of(kWithoutEffect, [&](const auto& setting) {
           return setting.first == key && value == setting.second;
         });
}

// The key of [generation] with the name and meaning of Hugging Face's `key`; null if there is none.
const ConfigKey* taken_key(const std::string& key) {
  return key == "seed" || key == "validate_examples" ? nullptr : find_config_key("generation", key);
}

ConfigValue config_value(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return {};
}

// The JSON object in the file `path`; null if there is no such file.
Json read_object(const JsonReader& reader, const fs::path& path, int64_t most_bytes) {
  std::error_code error;
  if (!fs::exists(path, error) && !error) return nullptr;
  return reader.parse(read_plain_file(path, most_bytes, ExitCode::kInputData));
}

// Sets the key `row` of `config` to the value `json`. Returns the error message if the key refuses the value,
// else "".
std::string take(const ConfigKey& row, const Json& json, RunConfig& config) {
  try {
    assign_value({.key = &row,
                  .value = config_value(json),
                  .shown = begin_of(text_of_json(json), 80),
                  .where = std::string(row.name)},
                 config);
  } catch (const Error& error) {
    return in_one_line(error.what());
  }
  return "";
}

}  // namespace

std::string prompt_json(const ExportedPrompt& prompt) {
  Json json{{"template", prompt.prompt_template}, {"context", prompt.context}};
  if (prompt.has_turns) json["conversations"] = true;
  return text_of_json(json, 2) + "\n";
}

std::optional<ExportedPrompt> read_prompt_json(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPromptFile;
  const JsonReader reader(path.string(), ExitCode::kInputData);
  const Json json = read_object(reader, path, kMostPromptBytes);
  if (json.is_null()) return std::nullopt;
  ExportedPrompt prompt{.prompt_template = reader.text(json, "template", kMostTemplateBytes),
                        .context = reader.integer(json, "context", 1, int64_t{1} << 40),
                        .has_turns = json.contains("conversations") && reader.flag(json, "conversations")};
  try {
    (void)parse_template(prompt.prompt_template, /*in_chat=*/true);  // checks less; PromptTemplate checks all
  } catch (const Error& refused) {
    reader.refuse("{}", refused.what());
  }
  return prompt;
}

GenerationFile read_generation_file(const fs::path& directory) {
  GenerationFile file{.path = directory / "generation_config.json", .values = {}, .ignored = {}};
  const JsonReader reader(file.path.string(), ExitCode::kInputData);
  const Json json = read_object(reader, file.path, kMostGenerationBytes);
  RunConfig config;
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || std::ranges::count(kOfEveryModel, key) > 0) continue;
    if (key == "max_length") {
      file.ignored.emplace_back("max_length (it counts the prompt, too; max_new_tokens does not)");
    } else if (const ConfigKey* const row = taken_key(key); row == nullptr) {
      if (!is_without_effect(key, value)) file.ignored.push_back(in_one_line(begin_of(key, 80)));
    } else if (const std::string problem = take(*row, value, config); !problem.empty()) {
      file.ignored.push_back(problem);
    } else {
      file.values.push_back({key, value_as_toml(*row, config)});
    }
  }
  if (config.generation.do_sample && config.generation.num_beams > 1) {
    std::erase_if(file.values, [](const GenerationValue& value) { return value.key == "do_sample"; });
    file.ignored.emplace_back("do_sample (ripstop's beams draw nothing)");
  } else if (config.generation.do_sample &&
             std::ranges::find(file.values, "top_k", &GenerationValue::key) == file.values.end()) {
    file.values.push_back({"top_k", "50"});
  }
  return file;
}

EndTokens read_end_tokens(const fs::path& directory, int64_t vocabulary_size) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    EndTokens found{.ids = {}, .path = directory / name};
    const JsonReader reader(found.path.string(), ExitCode::kInputData);
    const Json json = read_object(reader, found.path, kMostGenerationBytes);
    const Json* const value = json.is_object() ? reader.find(json, "eos_token_id") : nullptr;
    if (value == nullptr) continue;
    for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
      if (!id.is_number_integer())
        reader.refuse("eos_token_id is {}, expected an id or a list of ids",
                      begin_of(text_of_json(*value), 80));
      if (id >= 0 && id < vocabulary_size) found.ids.push_back(id.get<int32_t>());
    }
    std::ranges::sort(found.ids);
    const auto twice = std::ranges::unique(found.ids);
    found.ids.erase(twice.begin(), twice.end());
    if (found.ids.size() > GenerationSettings::kMostEndTokens)
      reader.refuse("eos_token_id has {} ids, at most {} are read", found.ids.size(),
                    GenerationSettings::kMostEndTokens);
    if (!found.ids.empty()) return found;
  }
  return {};
}

Json eos_token_id_json(const SpecialIds& ids) {
  std::set<int32_t> ends(ids.ends.begin(), ids.ends.end());
  if (ids.eos) ends.insert(*ids.eos);
  if (ends.empty()) return nullptr;
  return ends.size() == 1 ? Json(*ends.begin()) : Json(ends);
}

std::string generation_config_json(const GenerationSection& generation, const SpecialIds& ids) {
  Json json = {{"bos_token_id", FieldWriter::to_json(ids.bos)},
               {"eos_token_id", eos_token_id_json(ids)},
               {"pad_token_id", FieldWriter::to_json(ids.eos)},
               {"max_new_tokens", generation.max_new_tokens},
               {"num_beams", generation.num_beams},
               {"no_repeat_ngram_size", generation.no_repeat_ngram_size}};
  // Leaves out settings without an effect, because transformers warns about them.
  if (generation.min_new_tokens > 0) json["min_new_tokens"] = generation.min_new_tokens;
  if (generation.num_beams > 1) {
    json["length_penalty"] = generation.length_penalty;
    json["early_stopping"] = generation.early_stopping == EarlyStopping::kNever
                                 ? Json("never")
                                 : Json(generation.early_stopping == EarlyStopping::kTrue);
  }
  if (generation.do_sample) {
    json["do_sample"] = true;
    json["temperature"] = generation.temperature;
    json["top_k"] = generation.top_k;  // also 0 (off): without the key, transformers takes 50
    json["top_p"] = generation.top_p;
  }
  return text_of_json(json, 2) + "\n";
}

}  // namespace ripstop
