#include "train/evaluate/evaluation_directory.h"

#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/files/io.h"
#include "data/files/whole_file.h"
#include "data/process/partial_directory.h"
#include "data/process/shell_word.h"
#include "data/text/json_struct.h"
#include "model/core/error.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/manifest.h"
#include "train/config/nearest_name.h"
#include "train/config/run_config.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSettings = "settings.json";
constexpr int64_t kMostSettingsBytes = 1 << 20;
// Digits of a hash in names and messages.
constexpr size_t kHashDigits = 8;

// The contents of settings.json (docs/formats.md).
Json to_json(const EvaluationSettings& settings) {
  const GenerationSettings& generation = settings.generation;
  Json json = {{"step", settings.step},
               {"split", settings.split},
               {"examples", settings.examples},
               {"weights", settings.weights},
               {"data", settings.data},
               {"compute", settings.compute},
               {"context", settings.context},
               {"num_beams", generation.num_beams},
               {"max_new_tokens", generation.max_new_tokens},
               {"length_penalty", generation.length_penalty},
               {"early_stopping", to_string(generation.early_stopping)},
               {"no_repeat_ngram_size", generation.no_repeat_ngram_size},
               {"min_new_tokens", generation.min_new_tokens},
               {"do_sample", generation.do_sample},
               {"temperature", generation.temperature},
               {"top_k", generation.top_k},
               {"top_p", generation.top_p},
               {"seed", generation.seed}};
  if (!generation.eos_token_id.empty()) json["eos_token_id"] = generation.eos_token_id;
  return json;
}

// The contents of settings.json: {} if the file is damaged, nullopt if it is absent.
std::optional<Json> read_settings(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory / kSettings, error)) return std::nullopt;
  const fs::path path = directory / kSettings;
  const std::string text = read_plain_file(path, kMostSettingsBytes, ExitCode::kStorage);
  try {
    return JsonReader(path.string(), ExitCode::kStorage).parse(text);
  } catch (const Error&) {
    return Json::object();
  }
}

bool has_results(const fs::path& directory) {
  std::error_code error;
  const auto bytes = fs::file_size(directory / kPredictionsFile, error);
  return (!error && bytes > 0) || fs::exists(directory / kScoresFile, error) ||
         fs::exists(directory / kScoreRowsFile, error) || fs::exists(directory / kPartialLossFile, error);
}

std::string value_text(const std::string& key, const Json& value) {
  if (value.is_null()) return "none";
  if (!value.is_string()) return text_of_json(value);
  const std::string text = value;
  return key == "weights" || key == "data" ? text.substr(0, kHashDigits) : text;
}

// "examples 98 -> 5, max_new_tokens 12 -> 32"; "" if all settings are equal.
std::string differences(const Json& old, const Json& now) {
  std::string text;
  const auto compare = [&](const std::string& key) {
    const Json before = old.value(key, Json()), after = now.value(key, Json());
    if (before != after)
      text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", key, value_text(key, before),
                          value_text(key, after));
  };
  for (const auto& [key, value] : now.items()) compare(key);
  // Also compares settings that only a later version knows.
  for (const auto& [key, value] : old.items())
    if (!now.contains(key)) compare(key);
  return text;
}

[[noreturn]] void refuse(const fs::path& directory, const std::string& what) {
  throw Error(ExitCode::kUsage, fmt::format("{} {}", directory.string(), what),
              "nothing was changed: name another directory with --output, or remove this one");
}

// Throws if `directory` is in the checkpoints folder of a run: a run removes old step directories with all
// files in them, and `checkpoint verify` reports unknown files in a checkpoint.
void refuse_inside_checkpoints(const fs::path& directory) {
  std::error_code error;
  fs::path at = fs::weakly_canonical(directory, error);
  for (; at.has_relative_path(); at = at.parent_path())
    if (at.filename() == "checkpoints" && is_run(posix_io(), at.parent_path()))
      throw Error(
          ExitCode::kUsage,
          fmt::format("{} lies among the checkpoints of a run, which removes old ones with all that is "
                      "in them",
                      directory.string()),
          "leave out --output: the results go to RUN/evaluation/");
}

void refuse_file_in_the_way(const fs::path& directory) {
  std::error_code ignored;
  fs::path at = directory;
  while (!at.empty() && !fs::exists(at, ignored) && at != at.parent_path()) at = at.parent_path();
  if (at.empty() || !fs::exists(at, ignored) || fs::is_directory(at, ignored)) return;
  throw Error(ExitCode::kUsage,
              at == directory
                  ? fmt::format("{} is not a directory", directory.string())
                  : fmt::format("{} cannot be made: {} is not a directory", directory.string(), at.string()),
              "the results are several files: give --output a directory");
}

void refuse_other_settings(const fs::path& directory, const Json& settings) {
  refuse_inside_checkpoints(directory);
  std::optional<Json> found = read_settings(directory);
  if (found && !found->contains("weights"))
    refuse(directory, "has a settings.json that ripstop evaluate did not write");
  // The names of the files that an evaluation makes. Beside a settings.json other entries are allowed,
  // because people may keep files there that they made from the results.
  constexpr std::array<std::string_view, 5> kOwn = {kSettings, kPredictionsFile, kScoresFile,
                                                    kPartialLossFile, kScoreRowsFile};
  const std::string foreign = found ? "" : entries_in_the_way(posix_io(), directory, kOwn);
  if (!foreign.empty())
    throw Error(
        ExitCode::kUsage, fmt::format("{} holds no evaluation, and has {}", directory.string(), foreign),
        fmt::format("give the results a directory of their own, such as --output {}; job scripts, logs "
                    "and notes may lie there",
                    shell_word((directory / "evaluation").lexically_normal().string())));
  if (!has_results(directory)) return;
  if (!found) refuse(directory, "has results of an evaluation, but no settings.json to say of which");
  const std::string different = differences(*found, settings);
  if (!different.empty()) refuse(directory, "has an evaluation with other settings: " + different);
}

// The fields of loss.json. A NaN loss is written as null; reading refuses null, and the loss is computed
// again.
void loss_fields(auto& field, auto& loss) {
  field("sequences", loss.sequences);
  field("complete", loss.complete);
  field("loss_sum", loss.sum.loss);
  field("targets", loss.sum.target_count);
}

// Suffixes for settings that differ from the usual ones: "-beams4-length_penalty0.6".
std::string generation_suffixes(const GenerationSettings& now, const GenerationSettings& usual_ones) {
  // A setting without an effect in `now` gets no suffix.
  GenerationSettings usual = usual_ones;
  usual.num_beams = now.num_beams;
  usual.do_sample = now.do_sample;
  usual = usual.that_count();
  std::string suffixes;
  const auto add = [&](const char* name, const auto& value, const auto& usual_value) {
    if (value != usual_value) suffixes += fmt::format("-{}{}", name, value);
  };
  add("beams", now.num_beams, usual_ones.num_beams);
  add("length_penalty", now.length_penalty, usual.length_penalty);
  add("early_stopping_", to_string(now.early_stopping), to_string(usual.early_stopping));
  add("no_repeat_ngram_size", now.no_repeat_ngram_size, usual.no_repeat_ngram_size);
  add("min_new_tokens", now.min_new_tokens, usual.min_new_tokens);
  add("max_new_tokens", now.max_new_tokens, usual.max_new_tokens);
  if (now.do_sample != usual_ones.do_sample) suffixes += now.do_sample ? "-sample" : "-no_sample";
  add("temperature", now.temperature, usual.temperature);
  add("top_k", now.top_k, usual.top_k);
  add("top_p", now.top_p, usual.top_p);
  add("seed", now.seed, usual.seed);
  constexpr size_t kMostShown = 4;  // a file's name has at most 255 bytes
  if (now.eos_token_id != usual.eos_token_id) {
    const std::string ids = fmt::format("{}", fmt::join(now.eos_token_id, ","));
    suffixes +=
        "-eos" + (now.eos_token_id.size() <= kMostShown ? ids : sha256_hex(ids).substr(0, kHashDigits));
  }
  return suffixes;
}

}  // namespace

std::string evaluation_name(const EvaluationSettings& settings, const EvaluationSettings& usual) {
  std::string name = fmt::format("{}-{}", step_directory_name(settings.step), settings.split);
  if (settings.examples != usual.examples) name += fmt::format("-limit{}", settings.examples);
  name += generation_suffixes(settings.generation, usual.generation);
  if (settings.data != usual.data) name += "-data-" + settings.data.substr(0, kHashDigits);
  return name;
}

EvaluationClaim::EvaluationClaim(const fs::path& directory, const EvaluationSettings& settings,
                                 const std::function<void(const std::string&)>& note)
    : EvaluationClaim() {  // so that an error below runs the destructor
  const Json now = to_json(settings);
  std::error_code error;
  refuse_file_in_the_way(directory);
  refuse_other_settings(directory, now);
  fs::create_directories(directory, error);
  if (error) fail_storage(directory, "make the directory", error.value());
  partial_ = make_partial_directory(posix_io(), directory / kScoresFile, note);
  // A directory without results may have the settings.json of another evaluation.
  write_whole_file(directory / kSettings, now.dump(2) + "\n");
}

EvaluationClaim::~EvaluationClaim() {
  if (!partial_.empty()) remove_tree(posix_io(), partial_);
}

FoundPredictions find_predictions(const fs::path& evaluations, const fs::path& own,
                                  const EvaluationSettings& settings) {
  FoundPredictions most;
  Json wanted = to_json(settings);
  std::error_code error;
  for (const std::string& name : names_in(evaluations)) {
    const fs::path directory = evaluations / name;
    if (fs::equivalent(directory, own, error)) continue;
    try {
      const std::optional<Json> there = read_settings(directory);
      if (!there) continue;
      wanted["examples"] = there->value("examples", Json());
      if (!differences(*there, wanted).empty()) continue;
      std::vector<Prediction> found = read_predictions(directory);
      if (found.size() > most.predictions.size()) most = {directory, std::move(found)};
    } catch (const Error&) {
      continue;  // an error in another evaluation is no error of this one
    }
  }
  return most;
}

LossSoFar read_partial_loss(const std::filesystem::path& directory) {
  constexpr int64_t kMostBytes = 1 << 16;
  const std::filesystem::path path = directory / kPartialLossFile;
  const JsonReader reader(path.string(), ExitCode::kStorage);
  LossSoFar loss;
  try {
    const std::string text = read_whole_file(posix_io(), path, kMostBytes);
    reader.require_seal(text);
    const JsonReader::Json json = reader.parse(text);
    FieldReader fields(reader, json, FieldReader::Mode::kSkipsUnknown);
    loss_fields(fields, loss);
    return loss;
  } catch (const IoError& error) {
    if (!error.is_absence()) throw;
  } catch (const Error&) {
  }
  return {};
}

void write_partial_loss(const std::filesystem::path& directory, const LossSoFar& loss) {
  FieldWriter fields;
  loss_fields(fields, loss);
  write_whole_file(directory / kPartialLossFile, sealed_text(fields.json));
}

}  // namespace ripstop
