// ripstop checkpoint: lists the checkpoints of a run, shows one, verifies one. checkpoint_export.cpp exports.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/verify.h"
#include "train/commands/checkpoint_export.h"
#include "train/commands/checkpoint_import.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/exchange/pretrained_model.h"
#include "train/report/human_text.h"
#include "train/report/progress.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

struct CheckpointArguments {
  std::string path;
  std::string which = "latest";
  bool json = false;
};

// A checkpoint of `list`. Damaged ones are listed, too: after a crash people come to see them.
Json row_of(const ListedCheckpoint& c, bool is_best) {
  Json row = {{"step", c.step}, {"directory", c.directory.string()}, {"ok", c.manifest.has_value()}};
  if (!c.manifest) {
    row["problem"] = c.problem;
    return row;
  }
  const Manifest& m = *c.manifest;
  row.update({{"tokens", m.state.tokens},
              {"bytes", m.bytes()},
              {"mesh", {{"replicate", m.mesh.replicate}, {"fsdp", m.mesh.fsdp}, {"tensor", m.mesh.tensor}}},
              {"best", is_best}});
  return row;
}

std::string line_of(const ListedCheckpoint& c, bool is_best) {
  if (!c.manifest) return fmt::format("step {:<10} damaged: {}\n", c.step, c.problem);
  return fmt::format("step {:<10} {:>12}  {} tokens  {}{}\n", c.step, bytes_text(c.manifest->bytes()),
                     c.manifest->state.tokens, c.manifest->mesh.to_text(), is_best ? "  best" : "");
}

ExitCode list(Io& io, const CheckpointArguments& given) {
  const std::filesystem::path directory = find_checkpoints(io, given.path);
  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
  std::optional<int64_t> best;
  for (const ListedCheckpoint& checkpoint : listed)
    if (checkpoint.manifest && checkpoint.manifest->state.best)
      best = checkpoint.manifest->state.best->step;  // the newest manifest knows best
  Json rows = Json::array(), moved = Json::array();
  std::string text;
  for (const ListedCheckpoint& c : listed) {
    rows.push_back(row_of(c, best == c.step));
    text += line_of(c, best == c.step);
  }
  for (const DamagedCheckpoint& c : list_damaged(io, directory)) {
    moved.push_back({{"step", c.step}, {"directory", c.directory.string()}, {"bytes", c.bytes}});
    text += fmt::format("step {:<10} {:>12}  damaged, moved aside by a resume: {}\n", c.step,
                        bytes_text(c.bytes), c.directory.filename().string());
  }
  if (text.empty()) text = fmt::format("no checkpoints in {}\n", given.path);
  if (given.json)
    text = Json{{"checkpoints", std::move(rows)}, {"damaged", std::move(moved)}}.dump(
               2, ' ', false, Json::error_handler_t::replace) +
           "\n";
  fmt::print("{}", text);
  return ExitCode::kOk;
}

Json json_of(const ModelConfig& c) {
  return {{"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.max_position_embeddings},
          {"rms_norm_eps", c.rms_norm_eps},
          {"rope_theta", c.rope_theta},
          {"tie_word_embeddings", c.tie_word_embeddings}};
}

std::string line_of(const ModelConfig& c) {
  return fmt::format(
      "  model       {} parameters: {} layers, hidden {}, feed-forward {}, {} heads ({} key-value), {} {}\n",
      parameter_count(c), c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.num_attention_heads,
      c.num_key_value_heads, c.vocab_size, c.tie_word_embeddings ? "pieces, tied" : "pieces");
}

// The document of `inspect --json`. Its keys are a contract with people's scripts.
Json json_of(const std::filesystem::path& directory, const Manifest& m) {
  Json parameters = Json::array();
  for (const UnitSpec& unit : m.units)
    for (const PhysicalTensor& tensor : unit.tensors)
      for (const ParameterSpec& p : tensor.parts)
        parameters.push_back({{"name", p.name},
                              {"shape", p.is_vector() ? Json{p.columns} : Json{p.rows, p.columns}},
                              {"unit", unit.name}});
  const ModelConfig& c = m.state.model;
  Json document = {
      {"checkpoint", directory.string()},
      {"step", m.state.step},
      {"updates", m.state.updates},
      {"tokens", m.state.tokens},
      {"cursor", {{"epoch", m.state.epoch}, {"pack", m.state.sequence}}},
      {"mesh", {{"replicate", m.mesh.replicate}, {"fsdp", m.mesh.fsdp}, {"tensor", m.mesh.tensor}}},
      {"moments", to_string(m.moments)},
      {"model", json_of(c)},
      {"parameter_count", parameter_count(c)},
      {"data",
       {{"content_hash", m.state.data_content_hash},
        {"tokenizer_sha256", m.state.tokenizer_sha256},
        {"pack_plan_hash", m.state.pack_plan_hash}}},
      {"files", m.files.size()},
      {"bytes", m.bytes()},
      {"written_by", m.written_by},
      {"best", nullptr},
      {"parameters", std::move(parameters)}};
  if (const std::optional<BestSoFar>& best = m.state.best)
    document["best"] = {{"metric", best->metric}, {"value", best->value}, {"step", best->step}};
  return document;
}

// The document of `inspect --json` for a model of Hugging Face.
Json json_of(const std::filesystem::path& directory, const PretrainedModel& model) {
  Json parameters = Json::array();
  for (const auto& [name, tensor] : model.tensors)
    parameters.push_back({{"name", name},
                          {"huggingface_name", tensor.stored.name},
                          {"shape", tensor.stored.shape},
                          {"dtype", tensor.stored.dtype},
                          {"file", model.files[tensor.file].path().filename().string()}});
  return {{"directory", directory.string()}, {"format", "huggingface"},
          {"model", json_of(model.config)},  {"parameter_count", parameter_count(model.config)},
          {"files", model.files.size()},     {"bytes", model.bytes()},
          {"ignored", model.ignored},        {"parameters", std::move(parameters)}};
}

// Checks config, headers and sizes, not the weights.
ExitCode inspect_pretrained(const CheckpointArguments& given) {
  const PretrainedModel model = open_pretrained_model(given.path);
  if (given.json) {
    fmt::print("{}\n", json_of(given.path, model).dump(2, ' ', false, Json::error_handler_t::replace));
    return ExitCode::kOk;
  }
  std::set<std::string> dtypes;
  for (const auto& [name, tensor] : model.tensors) dtypes.insert(tensor.stored.dtype);
  fmt::print("{}\n  format      Hugging Face, LlamaForCausalLM\n{}", given.path, line_of(model.config));
  fmt::print("  context     {} positions, rope_theta {}\n", model.config.max_position_embeddings,
             model.config.rope_theta);
  fmt::print("  tensors     {} of {}\n", model.tensors.size(), fmt::join(dtypes, ", "));
  fmt::print("  files       {} of {}\n", model.files.size(), bytes_text(model.bytes()));
  if (!model.ignored.empty())
    fmt::print("  not needed  {}, as {}\n", counted(std::ssize(model.ignored), "tensor"),
               model.ignored.front());
  return ExitCode::kOk;
}

// Checks the manifest and the sizes of the files, not their bytes: it answers at once for any size.
ExitCode inspect(Io& io, const CheckpointArguments& given) {
  if (is_pretrained_model(given.path)) return inspect_pretrained(given);
  const std::filesystem::path directory = find_checkpoint(io, given.path, given.which);
  const Manifest m = check_checkpoint(io, directory);
  if (given.json) {
    fmt::print("{}\n", json_of(directory, m).dump(2));
    return ExitCode::kOk;
  }
  fmt::print("{}\n", directory.string());
  fmt::print("  step        {} ({} updates), next: epoch {}, sequence {}\n", m.state.step, m.state.updates,
             m.state.epoch, m.state.sequence);
  fmt::print("  tokens      {}\n", m.state.tokens);
  if (const std::optional<BestSoFar>& best = m.state.best)
    fmt::print("  best        {} {:.6g} at step {}\n", best->metric, best->value, best->step);
  fmt::print("{}", line_of(m.state.model));
  fmt::print("  saved on    {}\n", m.mesh.to_text());
  fmt::print("  moments     {}\n", to_string(m.moments));
  fmt::print("  files       {} of {}\n", m.files.size(), bytes_text(m.bytes()));
  fmt::print("  data        {}\n  tokenizer   {}\n", m.state.data_content_hash, m.state.tokenizer_sha256);
  fmt::print("  written by  {}\n", m.written_by);
  return ExitCode::kOk;
}

// "; the latest of 3, --checkpoint takes another" if `directory` was chosen among several of a run.
std::string choice_text(Io& io, const CheckpointArguments& given, const std::filesystem::path& directory) {
  std::error_code ignored;
  if (given.which != "latest" || std::filesystem::equivalent(given.path, directory, ignored)) return "";
  const size_t count = list_checkpoints(io, directory.parent_path()).size();
  return count > 1 ? fmt::format("; the latest of {}, --checkpoint takes another", count) : "";
}

ExitCode verify(Io& io, const CheckpointArguments& given) {
  const std::filesystem::path directory = find_checkpoint(io, given.path, given.which);
  // Damage is a result here and no exception: people want to see all of it, not the first place.
  std::optional<Progress> progress;
  const std::vector<CheckpointDamage> found =
      verify_checkpoint(io, directory, [&](int64_t done_bytes, int64_t total_bytes) {
        if (!progress) progress.emplace(stderr, "verify", "byte", total_bytes);
        progress->update(done_bytes);
      });
  progress.reset();
  if (given.json) {
    Json errors = Json::array();
    for (const CheckpointDamage& damage : found)
      errors.push_back({{"file", damage.file}, {"what", damage.what}, {"offset", damage.offset}});
    const Json document = {
        {"ok", found.empty()}, {"checkpoint", directory.string()}, {"errors", std::move(errors)}};
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const CheckpointDamage& damage : found)
      fmt::print("{}: {} (byte {})\n", damage.file, damage.what, damage.offset);
    fmt::print("{}: {}{}\n", directory.string(),
               found.empty() ? "whole: every byte is what was written" : "damaged",
               choice_text(io, given, directory));
  }
  return found.empty() ? ExitCode::kOk : ExitCode::kStorage;
}

// Options of the verbs that work on one checkpoint.
void add_which(Verb& verb, CheckpointArguments& given) {
  verb.option("RUN|CHECKPOINT", given.path, "a run's directory, or a checkpoint's").required();
  verb.option("--checkpoint", given.which, "of a run: latest, best, a step, or a step directory")
      .show_default();
}

using CheckpointAction = ExitCode (*)(Io& io, const CheckpointArguments& given);

void set_action(Verb& verb, const std::shared_ptr<CheckpointArguments>& given, CheckpointAction action) {
  verb.flag("--json", given->json, "one JSON document");
  verb.set_action([given, action] {
    PosixIo io;
    return action(io, *given);
  });
}

}  // namespace

void add_checkpoint(CommandLine& line) {
  Verb checkpoint = line.verb("checkpoint", "lists, shows, verifies, imports and exports checkpoints");
  checkpoint.set_example("ripstop checkpoint list runs/xsum\n  ripstop checkpoint verify runs/xsum --json");
  const auto given = std::make_shared<CheckpointArguments>();

  Verb verb = checkpoint.verb("list", "the checkpoints of a run");
  verb.option("RUN", given->path, "a run's directory").required();
  verb.set_example("ripstop checkpoint list runs/xsum");
  set_action(verb, given, list);

  verb = checkpoint.verb("inspect", "what a checkpoint, or a model of Hugging Face, holds");
  add_which(verb, *given);
  verb.set_example("ripstop checkpoint inspect runs/xsum --checkpoint best");
  set_action(verb, given, inspect);

  verb = checkpoint.verb("verify", "whether every byte of a checkpoint is what was written");
  add_which(verb, *given);
  verb.set_example("ripstop checkpoint verify runs/xsum/checkpoints/step_00001000 --json");
  set_action(verb, given, verify);

  add_checkpoint_import(checkpoint);
  add_checkpoint_export(checkpoint);
}

}  // namespace ripstop
