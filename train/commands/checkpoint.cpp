// `checkpoint list` and `checkpoint verify`. The other verbs have files of their own.
#include <optional>

#include "data/text/json_reader.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/takeovers.h"
#include "train/checkpoint/verify.h"
#include "train/commands/checkpoint_verbs.h"
#include "train/commands/commands.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

// A row of `list --json`. Damaged checkpoints have rows, too: people look for them after a crash.
Json row_of(const ListedCheckpoint& c, bool is_best) {
  Json row = {{"step", c.step}, {"directory", c.directory.string()}, {"ok", c.manifest.has_value()}};
  if (!c.manifest) {
    row["problem"] = c.problem;
    if (c.is_superseded) row["superseded"] = true;
    return row;
  }
  const Manifest& m = *c.manifest;
  row.update({{"tokens", m.state.tokens}, {"bytes", m.bytes()}, {"mesh", m.mesh}, {"best", is_best}});
  return row;
}

std::string line_of(const ListedCheckpoint& c, bool is_best) {
  if (!c.manifest) return fmt::format("step {:<10} {}: {}\n", c.step, c.verdict(), c.problem);
  return fmt::format("step {:<10} {:>12}  {} tokens  {}{}\n", c.step, bytes_text(c.manifest->bytes()),
                     c.manifest->state.tokens, c.manifest->mesh.to_text(), is_best ? "  best" : "");
}

ExitCode list(Io& io, const CheckpointArguments& given) {
  const std::filesystem::path directory = find_checkpoints(io, given.path);
  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
  std::optional<int64_t> best;
  for (const ListedCheckpoint& checkpoint : listed)
    if (checkpoint.manifest && checkpoint.manifest->state.best)
      best = checkpoint.manifest->state.best->step;  // the newest comes last, so it decides
  Json rows = Json::array(), moved = Json::array(), superseded = Json::array();
  std::string text;
  for (const ListedCheckpoint& c : listed) {
    rows.push_back(row_of(c, best == c.step));
    text += line_of(c, best == c.step);
  }
  for (const CheckpointAside& c : list_aside(io, directory)) {
    (c.is_superseded ? superseded : moved)
        .push_back({{"step", c.step}, {"directory", c.directory.string()}, {"bytes", c.bytes}});
    text += fmt::format("step {:<10} {:>12}  {}: {}\n", c.step, bytes_text(c.bytes),
                        c.is_superseded ? "superseded, moved aside when its step was saved again"
                                        : "damaged, moved aside by a resume",
                        c.directory.filename().string());
  }
  if (text.empty()) text = fmt::format("no checkpoints in {}\n", given.path);
  if (given.json)
    text = text_of_json({{"checkpoints", std::move(rows)},
                         {"damaged", std::move(moved)},
                         {"superseded", std::move(superseded)}},
                        2) +
           "\n";
  print_out("{}", text);
  return ExitCode::kOk;
}

// "; the latest of 3, --checkpoint takes another" if "latest" chose `directory` among several; else "".
std::string choice_text(Io& io, const CheckpointArguments& given, const std::filesystem::path& directory) {
  std::error_code ignored;
  if (given.which != "latest" || std::filesystem::equivalent(given.path, directory, ignored)) return "";
  const size_t count = list_checkpoints(io, directory.parent_path()).size();
  return count > 1 ? fmt::format("; the latest of {}, --checkpoint takes another", count) : "";
}

ExitCode verify(Io& io, const CheckpointArguments& given) {
  const std::filesystem::path directory = find_and_warn(io, given);
  Progress progress(stderr);
  // Damage is a result, not an exception: people want to see every damaged file.
  const std::vector<CheckpointDamage> found =
      verify_checkpoint(io, directory, [&](int64_t done_bytes, int64_t total_bytes) {
        progress.update("verify", "byte", done_bytes, total_bytes);
      });
  progress.clear();
  if (!found.empty()) require_not_removed(directory);
  if (given.json) {
    Json errors = Json::array();
    for (const CheckpointDamage& damage : found)
      errors.push_back({{"file", damage.file}, {"what", damage.what}, {"offset", damage.offset}});
    const Json document{
        {"ok", found.empty()}, {"checkpoint", directory.string()}, {"errors", std::move(errors)}};
    print_out("{}\n", text_of_json(document, 2));
  } else {
    for (const CheckpointDamage& damage : found)
      print_out("{}: {} (byte {})\n", damage.file, damage.what, damage.offset);
    print_out(
        "{}: {}{}\n", directory.string(),
        found.empty() ? "whole: every byte is what was written" : "damaged, superseded or of another format",
        choice_text(io, given, directory));
  }
  return found.empty() ? ExitCode::kOk : ExitCode::kStorage;
}

// Adds the arguments that choose a checkpoint.
void add_which(Verb& verb, CheckpointArguments& given, const char* path_help) {
  verb.path("RUN|CHECKPOINT", given.path, path_help).required();
  verb.path("--checkpoint", given.which, "of a run: latest, best, a step, or a step directory")
      .show_default();
}

using CheckpointAction = ExitCode (*)(Io& io, const CheckpointArguments& given);

void set_action(Verb& verb, const std::shared_ptr<CheckpointArguments>& given, CheckpointAction action) {
  verb.flag("--json", given->json, "one JSON document");
  verb.set_action([given, action] {
    Io io;
    return action(io, *given);
  });
}

}  // namespace

void warn_of_superseded(Io& io, const std::filesystem::path& chosen) {
  const std::filesystem::path name = (chosen.has_filename() ? chosen : chosen.parent_path()).filename();
  const std::optional<int64_t> step = parse_step_directory_name(name.string());
  if (!step) return;
  try {
    for (const ListedCheckpoint& checkpoint : list_checkpoints(io, folder_of_checkpoint(chosen)))
      if (checkpoint.is_superseded && checkpoint.step > *step)
        print_to(stderr, "warning: passing over a checkpoint: {}\n", checkpoint.problem);
  } catch (const Error&) {
  }
}

std::filesystem::path find_and_warn(Io& io, const CheckpointArguments& given) {
  std::filesystem::path directory = find_checkpoint(io, given.path, given.which);
  warn_of_superseded(io, directory);
  return directory;
}

void add_checkpoint(CommandLine& line) {
  Verb checkpoint = line.verb("checkpoint", "lists, shows, verifies, imports and exports checkpoints");
  checkpoint.set_example("ripstop checkpoint list runs/xsum\n  ripstop checkpoint verify runs/xsum --json");
  const auto given = std::make_shared<CheckpointArguments>();

  Verb verb = checkpoint.verb("list", "the checkpoints of a run");
  verb.path("RUN", given->path, "a run's directory").required();
  verb.set_example("ripstop checkpoint list runs/xsum");
  set_action(verb, given, list);

  verb = checkpoint.verb("inspect", "what a checkpoint, or a model of Hugging Face, holds");
  add_which(verb, *given, "a run's directory, a checkpoint's, or that of a model of Hugging Face");
  verb.set_example("ripstop checkpoint inspect runs/xsum --checkpoint best");
  set_action(verb, given, inspect_checkpoint);

  verb = checkpoint.verb("verify", "whether every byte of a checkpoint is what was written");
  add_which(verb, *given, "a run's directory, or a checkpoint's");
  verb.set_example("ripstop checkpoint verify runs/xsum/checkpoints/step_00001000 --json");
  set_action(verb, given, verify);

  add_checkpoint_import(checkpoint);
  add_checkpoint_export(checkpoint);
}

}  // namespace ripstop
