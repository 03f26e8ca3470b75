#include "train/checkpoint/checkpoint_reader.h"
#include "train/commands/checkpoint_verbs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>

#include "data/process/shell_word.h"
#include "data/text/json_struct.h"
#include "data/tokenizer/tokenizer.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/takeovers.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/plan/pretrained_sizes.h"
#include "train/report/human_text.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

struct TokenizerFile {
  std::string stated;  ///< the tokenizer's SHA-256 in the manifest; may be empty
  std::string path;    ///< path of the tokenizer's file; empty: not found
  std::string sha256;  ///< Tokenizer::sha256; empty: the file is absent or damaged
  std::string problem;
  int64_t pieces = 0;
  bool has_json = false;  ///< the directory has a tokenizer.json
  std::optional<int32_t> eos = {};
  std::vector<std::string> notes = {};

  bool is_same() const { return !sha256.empty() && (stated.empty() || stated == sha256); }
};

TokenizerFile look_at_tokenizer(const fs::path& directory, const std::string& stated) {
  TokenizerFile file;
  file.stated = stated;
  std::error_code ignored;
  file.has_json = fs::exists(directory / kTokenizerJsonFile, ignored);
  if (!file.has_json && !fs::exists(directory / kSentencePieceFile, ignored)) return file;
  try {
    file.path = (directory / tokenizer_file_name(directory)).string();
    const Tokenizer tokenizer(directory);
    file.path = tokenizer.name();
    file.sha256 = tokenizer.sha256();
    file.pieces = tokenizer.vocabulary_size();
    if (tokenizer.has_eos()) file.eos = tokenizer.eos();
    file.notes = tokenizer.notes();
  } catch (const Error& error) {
    file.problem = error.what();
  }
  return file;
}

std::string text_of(const TokenizerFile& file) {
  if (!file.problem.empty()) return "damaged: " + file.problem;
  if (file.path.empty())
    return std::string(kNoTokenizer) + ": give prepare and summarize the model's own, with --tokenizer";
  return fmt::format("{}, {} pieces{}", file.path, file.pieces,
                     file.is_same() ? "" : ": another one than that of the training") +
         (file.notes.empty() ? ""
                             : fmt::format("\n  note        {}", fmt::join(file.notes, "\n  note        ")));
}

// "matches" is null if the manifest has no hash or no tokenizer is found.
Json json_of(const TokenizerFile& file) {
  const bool comparable = !file.stated.empty() && !file.path.empty();
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"file", or_null(file.path)},
          {"sha256", or_null(file.sha256)},
          {"pieces", file.sha256.empty() ? Json(nullptr) : Json(file.pieces)},
          {"matches", comparable ? Json(file.is_same()) : Json(nullptr)},
          {"problem", or_null(file.problem)},
          {"tokenizer_json", file.has_json}};
}

struct Surroundings {
  bool resumable = false;  ///< the run would go on from this checkpoint
  std::string resume;      ///< the command to go on, or why the run does not go on from this checkpoint
  TokenizerFile tokenizer;
  std::set<int32_t> ends;  ///< ids at which texts end
};

// RUN for RUN/checkpoints; nullopt if `folder` has another name.
std::optional<fs::path> run_of_checkpoints(const fs::path& folder) {
  if (folder.filename() != "checkpoints") return std::nullopt;
  return (folder.has_parent_path() ? folder : fs::absolute(folder)).parent_path();
}

Surroundings look_around(Io& io, const fs::path& directory, const Manifest& m) {
  Surroundings seen;
  const fs::path folder = folder_of_checkpoint(directory);
  const std::optional<fs::path> run = run_of_checkpoints(folder);
  seen.tokenizer = look_at_tokenizer(run ? *run : folder, m.state.tokenizer_sha256);
  std::ranges::copy(read_model_ends(io, directory), std::inserter(seen.ends, seen.ends.end()));
  if (seen.tokenizer.eos) seen.ends.insert(*seen.tokenizer.eos);
  const std::string path = shell_word((run ? *run : directory).string());
  if (m.state.step == 0) {
    seen.resume = fmt::format("an import, no run: model.pretrained={} begins one with its weights", path);
    return seen;
  }
  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, folder);
  const auto newest = std::find_if(listed.rbegin(), listed.rend(),
                                   [](const ListedCheckpoint& each) { return each.manifest.has_value(); });
  std::error_code ignored;
  if (!run || !fs::exists(*run / "config.toml", ignored)) {
    seen.resume = fmt::format("no config.toml of a run: model.pretrained={} begins a run with its weights",
                              shell_word(directory.string()));
  } else if (newest != listed.rend() && newest->step != m.state.step) {
    seen.resume = fmt::format("the run goes on from step {}, its newest whole checkpoint", newest->step);
  } else {
    seen.resumable = true;
    seen.resume = fmt::format("the run goes on from here: ripstop train {}",
                              shell_word((*run / "config.toml").string()));
  }
  return seen;
}

Json json_of(const ModelConfig& model) {
  FieldWriter fields;
  for_each_field(model, fields);
  fields.json.erase("initializer_range");  // used for new weights only
  return fields.json;
}

std::string line_of(const ModelConfig& model) {
  return fmt::format("  model       {} parameters: {}\n", parameter_count(model), model_text(model));
}

// `inspect --json` of a checkpoint. Scripts rely on its keys.
Json json_of(const fs::path& directory, const Manifest& m, const Surroundings& seen) {
  const Json stored = Json::parse(manifest_text(m));
  Json parameters = Json::array();
  for (const UnitSpec& unit : m.units)
    for (const ParameterSpec& p : unit.parameters())
      parameters.push_back({{"name", p.name},
                            {"shape", p.vector ? Json{p.count()} : Json{p.rows, p.columns}},
                            {"unit", unit.name}});
  Json document = {{"checkpoint", directory.string()},
                   {"verdict", "whole"},
                   {"problem", nullptr},
                   {"resumable", seen.resumable},
                   {"resume", seen.resume}};
  const auto copy = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) document[key] = stored.at(key);
  };
  copy({"step", "takeover", "updates", "tokens", "cursor", "mesh", "moments"});
  document["model"] = json_of(m.state.model);
  document["parameter_count"] = parameter_count(m.state.model);
  copy({"data"});
  document["tokenizer"] = json_of(seen.tokenizer);
  document["end_tokens"] = seen.ends;
  document["files"] = m.files.size();
  document["bytes"] = m.bytes();
  copy({"written_by", "best", "adapters"});
  document["parameters"] = std::move(parameters);
  return document;
}

// The end tokens of a model. If their file is damaged, `problem` says so, and the rest is still shown.
EndTokens look_at_ends(const PretrainedModel& model, const fs::path& directory, std::string& problem) {
  try {
    return read_end_tokens(directory, model.config.vocab_size);
  } catch (const Error& error) {
    problem = error.what();
    return {};
  }
}

Json json_of(const fs::path& directory, const PretrainedModel& model, const TokenizerFile& tokenizer) {
  std::string problem;
  const EndTokens ends = look_at_ends(model, directory, problem);
  Json parameters = Json::array();
  for (const auto& [name, tensor] : model.tensors)
    parameters.push_back({{"name", name},
                          {"huggingface_name", tensor.name},
                          {"shape", tensor.shape},
                          {"dtype", tensor.dtype},
                          {"file", model.files[tensor.file].path().filename().string()}});
  return {{"directory", directory.string()},
          {"format", "huggingface"},
          {"verdict", "readable"},
          {"model", json_of(model.config)},
          {"parameter_count", parameter_count(model.config)},
          {"tokenizer", json_of(tokenizer)},
          {"end_tokens", problem.empty() ? Json(ends.ids) : Json(nullptr)},
          {"files", model.files.size()},
          {"bytes", model.bytes()},
          {"ignored", model.ignored},
          {"wrappers", model.wrappers},
          {"parameters", std::move(parameters)}};
}

// Checks a Hugging Face model's config, file headers and file sizes, not its weights.
ExitCode inspect_pretrained(const CheckpointArguments& given) {
  const PretrainedModel model = open_pretrained_model(given.path);
  const TokenizerFile tokenizer = look_at_tokenizer(given.path, "");
  if (given.json) {
    print_out("{}\n", text_of_json(json_of(given.path, model, tokenizer), 2));
    return ExitCode::kOk;
  }
  std::set<std::string> dtypes;
  for (const auto& [name, tensor] : model.tensors) dtypes.insert(tensor.dtype);
  print_out(
      "{}\n  verdict     readable: config.json, names, sizes and dtypes fit; the weights were not read\n",
      given.path);
  print_out("  format      Hugging Face, exported as {}\n{}", pretrained_architecture(model.config),
            line_of(model.config));
  print_out("  context     {} positions, rope_theta {}\n", model.config.max_position_embeddings,
            model.config.rope_theta);
  print_out("  tensors     {} of {}\n", model.tensors.size(), fmt::join(dtypes, ", "));
  print_out("  files       {}, {} in all\n", counted(std::ssize(model.files), "file"),
            bytes_text(model.bytes()));
  print_out("  tokenizer   {}\n", text_of(tokenizer));
  std::string problem;
  const EndTokens ends = look_at_ends(model, given.path, problem);
  if (!problem.empty()) print_out("  texts end   damaged: {}\n", problem);
  if (!ends.ids.empty())
    print_out("  texts end   at the ids {} of {}\n", fmt::join(ends.ids, ", "),
              ends.path.filename().string());
  if (!model.wrappers.empty())
    print_out("  names       all begin with '{}', which is left out\n", model.wrappers);
  if (!model.ignored.empty())
    print_out("  not needed  {}, as {}\n", counted(std::ssize(model.ignored), "tensor"),
              model.ignored.front());
  return ExitCode::kOk;
}

void print_text(const fs::path& directory, const Manifest& m, const Surroundings& seen) {
  print_out("{}\n", directory.string());
  print_out(
      "  verdict     whole: the manifest and the sizes of all files are right; ripstop checkpoint verify {} "
      "reads every byte\n",
      shell_word(directory.string()));
  print_out("  resume      {}\n", seen.resume);
  print_out("  step        {} ({} updates), next: epoch {}, sequence {}\n", m.state.step, m.state.updates,
            m.state.cursor.epoch, m.state.cursor.sequence);
  print_out("  tokens      {}\n", m.state.tokens);
  if (const std::optional<BestSoFar>& best = m.state.best)
    print_out("  best        {} {:.6g} at step {}\n", best->metric, best->value, best->step);
  print_out("{}", line_of(m.state.model));
  if (const std::optional<AdaptedBase>& adapted = m.state.adapted)
    print_out("  adapters    alone, {}\n  base        {}\n", adapters_text(adapted->lora),
              adapted->directory);
  print_out("  saved on    {}\n", m.mesh.to_text());
  print_out("  moments     {}\n", to_string(m.moments));
  print_out("  files       {}, {} in all\n", counted(std::ssize(m.files), "file"), bytes_text(m.bytes()));
  const auto or_unknown = [](const std::string& text) { return text.empty() ? "not known" : text; };
  print_out("  data        {}\n", or_unknown(m.state.data_content_hash));
  print_out("  tokenizer   SHA-256 {}\n              {}\n", or_unknown(m.state.tokenizer_sha256),
            text_of(seen.tokenizer));
  if (!seen.ends.empty()) print_out("  texts end   at the ids {}\n", fmt::join(seen.ends, ", "));
  print_out("  written by  {}\n", m.written_by);
}

// Damage is a result, not an exception, as in `checkpoint verify`.
ExitCode report_damage(const CheckpointArguments& given, const ListedCheckpoint& found) {
  const std::string directory = found.directory.string();
  const Json document{{"checkpoint", directory},
                      {"verdict", found.verdict()},
                      {"problem", found.problem},
                      {"resumable", false},
                      {"resume", "a run goes on from its newest whole checkpoint"}};
  if (given.json)
    print_out("{}\n", text_of_json(document, 2));
  else
    print_out(
        "{}\n  verdict     {}: {}\n  resume      a run goes on from its newest whole checkpoint: ripstop "
        "checkpoint list {} shows them\n",
        directory, found.verdict(), found.problem,
        shell_word(folder_of_checkpoint(found.directory).string()));
  return ExitCode::kStorage;
}

}  // namespace

// Checks the manifest and the sizes of files, but does not read the weights, so the answer comes at once.
ExitCode inspect_checkpoint(Io& io, const CheckpointArguments& given) {
  if (is_pretrained_model(given.path)) return inspect_pretrained(given);
  const ListedCheckpoint found = look_at_checkpoint(io, find_and_warn(io, given));
  if (!found.manifest) require_not_removed(found.directory);
  if (!found.manifest) return report_damage(given, found);
  const Surroundings seen = look_around(io, found.directory, *found.manifest);
  if (given.json)
    print_out("{}\n", text_of_json(json_of(found.directory, *found.manifest, seen), 2));
  else
    print_text(found.directory, *found.manifest, seen);
  return ExitCode::kOk;
}

}  // namespace ripstop
