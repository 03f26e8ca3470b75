#include "train/checkpoint/find_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>

#include "data/files/directory.h"
#include "data/process/shell_word.h"
#include "data/text/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/number.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/nearest_name.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarks = "metrics.jsonl, LOCK, prompt_template.txt or checkpoint";

std::vector<fs::path> runs_inside(Io& io, const fs::path& folder) {
  std::vector<fs::path> runs;
  for (const Io::Entry& entry : list_directory(io, folder)) {
    if (!entry.is_directory && !entry.is_link) continue;
    try {
      if (is_run(io, folder / entry.name)) runs.push_back(folder / entry.name);
    } catch (const Error&) {
      // A directory that this process may not enter must not hide the others.
    }
  }
  return runs;
}

/// The step that a path such as step_35 or 35 names, without the zeros of a step directory.
std::optional<int64_t> step_of_name(const fs::path& path) {
  std::string name = path.filename().string();
  if (name.starts_with("step_")) name.erase(0, 5);
  return parse_whole_number(name);
}

/// Advice for a `path` that does not exist: "did you mean runs/first?", or what to give instead.
std::string hint_for_missing(const fs::path& path) {
  std::error_code ignored;
  if (const std::optional<int64_t> step = step_of_name(without_slash(path)))
    if (const fs::path whole = folder_of(path) / step_directory_name(*step); fs::exists(whole, ignored))
      return fmt::format("did you mean {}?", shell_word(whole.string()));
  // With ".", hint_for_absent looks for directories only.
  if (std::string hint = hint_for_absent(path, "", "."); !hint.empty()) return hint;
  if (looks_like_hub_name(path))
    return fmt::format("nothing is downloaded: give the local directory that `hf download {}` prints",
                       shell_word(path.string()));
  return "give the directory of a run (its run.directory), or one of its checkpoints";
}

/// Advice for a path inside a run: "it lies in one: give runs/first"; "" for others.
std::string hint_for_part_of_run(Io& io, const fs::path& path) {
  const fs::path whole = fs::absolute(without_slash(path)).lexically_normal();
  for (fs::path above = whole.parent_path(); above != above.parent_path(); above = above.parent_path()) {
    try {
      if (is_run(io, above)) return fmt::format("it lies in one: give {}", shell_word(above.string()));
    } catch (const Error&) {
      // Folders of others above must not hide what is wrong with `path`.
    }
  }
  return "";
}

void require_directory(Io& io, const fs::path& path) {
  if (path.empty()) throw Error(ExitCode::kUsage, "the name of a directory is empty");
  if (directory_exists(io, path)) return;
  const bool is_file = path_exists(io, path);
  if (is_file && path_exists(io, folder_of(path) / "config.json"))
    throw Error(
        ExitCode::kUsage, fmt::format("{}: is not a directory", path.string()),
        fmt::format("it is a file of a model: give its directory, {}", shell_word(folder_of(path).string())));
  if (const std::string hint = is_file ? hint_for_part_of_run(io, path) : ""; !hint.empty())
    throw Error(ExitCode::kUsage, fmt::format("{}: is not a run directory: it is a file", path.string()),
                hint);
  const std::string way = is_file ? find_foreign_weights(path).way : "";
  throw Error(ExitCode::kUsage,
              fmt::format("{}: {}", path.string(), is_file ? "is not a directory" : "no such directory"),
              way.empty() ? hint_for_missing(path) : way);
}

/// Advice for a directory that has no run, checkpoints or model.
std::string hint_for_contents(Io& io, const fs::path& path) {
  if (const std::vector<fs::path> runs = runs_inside(io, path); !runs.empty())
    return fmt::format("it holds runs: give one of them, as {}", shell_word(runs.front().string()));
  if (const std::string link = hint_for_link(path / "config.json"); !link.empty())
    return "its config.json is no file: " + link;
  // In the cache of Hugging Face's hub, blobs and refs lie beside `snapshots`, which has the models.
  const bool is_beside = path.filename() == "blobs" || path.filename() == "refs";
  for (const char* file : {"config.json", "adapter_config.json"})
    if (const fs::path below = find_below(is_beside ? folder_of(path) : path, file); !below.empty())
      return fmt::format("the model is deeper: give {}", shell_word(below.string()));
  const auto [what, way] = find_foreign_weights(path);
  return what.empty() ? "give the directory of a run (its run.directory), of a checkpoint, or of a model"
                      : fmt::format("it has {}: {}", what, way);
}

/// Throws Error(kUsage), with advice, for a directory without a run or checkpoints.
[[noreturn]] void refuse(Io& io, const fs::path& path) {
  if (path_exists(io, path / "adapter_config.json"))
    throw Error(
        ExitCode::kUsage,
        fmt::format("{}: has adapters of PEFT, and no model or run is there", path.string()),
        "train begins with them as lora.adapter, beside the model in model.pretrained; merge_and_unload() "
        "of PEFT makes a whole model");
  std::error_code ignored;
  if (fs::exists(path / "config.json", ignored))
    throw Error(ExitCode::kUsage, fmt::format("{}: is a model, and a run is needed here", path.string()),
                "ripstop checkpoint inspect shows a model, and import makes a run of it");
  const std::string part = hint_for_part_of_run(io, path);
  throw Error(ExitCode::kUsage,
              fmt::format("{}: is neither a run nor a model: it has no {}, and no config.json", path.string(),
                          kMarks),
              part.empty() ? hint_for_contents(io, path) : part);
}

bool holds_checkpoints(Io& io, const fs::path& directory) {
  for (const Io::Entry& entry : list_directory(io, directory))
    if (parse_step_directory_name(entry.name)) return true;
  return false;
}

struct NamedStep {
  int64_t step = 0;
  fs::path directory;  ///< set if the path of a step directory was given
};

std::string steps_text(const std::vector<ListedCheckpoint>& listed) {
  std::string text;
  for (const ListedCheckpoint& checkpoint : listed)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", checkpoint.step);
  return text;
}

/// For a message: "; runs/first has those of step 250, 500"; "" if `path` has no checkpoints.
std::string steps_there(Io& io, const fs::path& path) {
  try {
    const std::vector<ListedCheckpoint> listed =
        list_checkpoints(io, find_checkpoints(io, without_slash(path)));
    return listed.empty() ? "" : fmt::format("; {} has those of step {}", path.string(), steps_text(listed));
  } catch (const Error&) {
    return "";  // the caller reports that `which` is wrong, not that `path` is damaged
  }
}

/// The step that `which` of find_checkpoint() names; nullopt for "latest" and "best". `run` is used only in
/// the hint of the error.
std::optional<NamedStep> parse_step(Io& io, const fs::path& run, const std::string& which) {
  if (which == "latest" || which == "best") return std::nullopt;
  const fs::path path = without_slash(which);
  const std::optional<int64_t> step = step_of_name(path);
  if (!step)
    throw Error(
        ExitCode::kUsage, fmt::format("no checkpoint is called '{}'", which),
        "give best, latest, a step such as 60, or the path of a step directory" + steps_there(io, run));
  return NamedStep{*step, path.has_parent_path() ? path : fs::path()};
}

/// The newest checkpoint that is whole or of another format; null if there is none.
const ListedCheckpoint* newest_whole(const std::vector<ListedCheckpoint>& listed) {
  for (auto at = listed.rbegin(); at != listed.rend(); ++at)
    if (at->manifest || !at->hint.empty()) return &*at;
  return nullptr;
}

/// The directory of the checkpoint `named`. All checkpoints in `listed` lie in `directory`.
fs::path find_named_step(const fs::path& directory, const std::vector<ListedCheckpoint>& listed,
                         const NamedStep& named, const std::string& which) {
  const auto found = std::ranges::find(listed, named.step, &ListedCheckpoint::step);
  if (found == listed.end())
    throw Error(ExitCode::kUsage,
                fmt::format("{}: has no checkpoint of step {}", directory.string(), named.step),
                "it has those of step " + steps_text(listed));
  std::error_code ignored;  // a path that does not exist compares as different
  if (!named.directory.empty() && !fs::equivalent(named.directory, found->directory, ignored) &&
      !fs::equivalent(directory.parent_path() / named.directory, found->directory, ignored))
    throw Error(ExitCode::kUsage, fmt::format("{}: is not a checkpoint of {}", which, directory.string()),
                "give it instead of the run's directory, without --checkpoint");
  return found->directory;
}

/// The directory of the checkpoint that the manifest of `newest` calls the best; if the manifest names no
/// best checkpoint, the directory of `newest`.
fs::path find_best(const fs::path& directory, const std::vector<ListedCheckpoint>& listed,
                   const ListedCheckpoint& newest) {
  const std::optional<BestSoFar> best = newest.manifest ? newest.manifest->state.best : std::nullopt;
  if (!best) return newest.directory;
  const auto found = std::ranges::find(listed, best->step, &ListedCheckpoint::step);
  if (found == listed.end())
    throw Error(
        ExitCode::kStorage,
        fmt::format("{}: the best checkpoint, of step {}, does not exist", directory.string(), best->step),
        "take another: --checkpoint latest, or step " + steps_text(listed));
  return found->directory;
}

bool is_in_the_way(Io& io, const fs::path& path, bool is_folder) {
  const std::string name = path.filename().string(), extension = path.extension().string();
  const auto is_one_of = [](std::string_view word, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (!is_folder)
    return is_one_of(extension, {".bin", ".h5", ".jsonl", ".safetensors"}) || is_tokenizer_file(name) ||
           is_one_of(name,
                     {"config.toml", "prompt_template.txt", "prepare.json", "LOCK", Manifest::kFileName});
  if (name != "checkpoints") return name != "logs" && (!name.starts_with(".") || name == ".git");
  return !std::ranges::all_of(list_directory(io, path), [](const Io::Entry& entry) {
    return entry.name.starts_with("LOCK") || entry.name.starts_with(".") ||
           entry.name == Takeovers::kFileName;
  });
}

}  // namespace

ForeignWeights find_foreign_weights(const fs::path& path) {
  // A part of the file's name, what the file is, and how to get a file that ripstop reads.
  constexpr std::array<std::array<const char*, 3>, 8> kKnown = {
      {{"zero_to_fp32.py", "of DeepSpeed",
        "python zero_to_fp32.py . OUT --safe_serialization, run there, converts it"},
       {".distcp", "of torch.distributed",
        "dcp_to_torch_save of torch.distributed.checkpoint.format_utils joins it"},
       {"consolidated.0", "a pickle that could run any code, as Meta has it",
        "convert_llama_weights_to_hf.py of transformers converts it once"},
       {"pytorch_model_fsdp", "of torch.distributed", "accelerate merge-weights joins it"},
       {"global_step", "of DeepSpeed", "zero_to_fp32.py of DeepSpeed converts it"},
       {"pytorch_model", "weights", "take config.json and all other files of the model as well"},
       {".gguf", "for llama.cpp", "take the safetensors that it was made of"},
       {".safetensors", "weights", "take config.json and all other files of the model as well"}}};
  std::error_code ignored;
  const std::vector<std::string> names =
      fs::is_directory(path, ignored) ? names_in(path) : std::vector{path.filename().string()};
  for (const auto& [part, what, way] : kKnown)
    for (const std::string& name : names)
      if (name.find(part) != std::string::npos) return {fmt::format("{}, {}", name, what), way};
  return {};
}

bool is_run(Io& io, const fs::path& directory) {
  // A run writes prompt_template.txt before metrics.jsonl, and may be killed between them.
  for (const char* mark : {"metrics.jsonl", "prompt_template.txt"})
    if (path_exists(io, directory / mark)) return true;
  // A LOCK among checkpoints belongs to a run whose `checkpoints` is a link to this folder.
  if (path_exists(io, directory / "LOCK") && !holds_checkpoints(io, directory)) return true;
  const fs::path checkpoints = directory / "checkpoints";
  return directory_exists(io, checkpoints) && holds_checkpoints(io, checkpoints);
}

std::vector<fs::path> find_runs(Io& io, const fs::path& path) {
  require_directory(io, path);
  if (is_run(io, path)) return {path};
  std::vector<fs::path> runs = runs_inside(io, path);
  if (!runs.empty()) return runs;
  if (path_exists(io, path / "config.json") || path_exists(io, path / "adapter_config.json"))
    refuse(io, path);
  if (const std::string hint = hint_for_part_of_run(io, path); !hint.empty())
    throw Error(ExitCode::kUsage, fmt::format("{}: is not a run directory", path.string()), hint);
  throw Error(
      ExitCode::kUsage,
      fmt::format("{}: is not a run directory, and holds none: there is no {}", path.string(), kMarks),
      "give the directories of runs, or a folder that holds them itself: what lies deeper is not looked "
      "at");
}

fs::path find_checkpoints(Io& io, const fs::path& path) {
  require_directory(io, path);
  if (is_run(io, path)) return path / "checkpoints";
  if (!holds_checkpoints(io, path)) refuse(io, path);
  return path;
}

fs::path find_checkpoint(Io& io, const fs::path& path, const std::string& which) {
  // A typing error in `which` must be reported even if there is no checkpoint yet.
  const std::optional<NamedStep> named = parse_step(io, path, which);
  const fs::path given = without_slash(path);
  const std::optional<int64_t> own_step = parse_step_directory_name(given.filename().string());
  if (path_exists(io, given / Manifest::kFileName) || (own_step && path_exists(io, given))) {
    if (named && own_step && named->step != *own_step)
      throw Error(ExitCode::kUsage, fmt::format("{}: is not the checkpoint '{}'", path.string(), which),
                  "give the directory of the run, or leave --checkpoint out");
    return given;
  }
  const fs::path directory = find_checkpoints(io, given);
  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
  if (listed.empty())
    throw Error(ExitCode::kUsage, fmt::format("{}: has no checkpoint", path.string()),
                "ripstop train saves the first after checkpoint.every_steps steps; ripstop status shows the "
                "progress of a run");
  if (named) return find_named_step(directory, listed, *named, which);
  const ListedCheckpoint* newest = newest_whole(listed);
  // No checkpoint is whole, so opening the newest reports its problem.
  if (newest == nullptr) return listed.back().directory;
  return which == "best" ? find_best(directory, listed, *newest) : newest->directory;
}

std::string entries_in_the_way(Io& io, const fs::path& directory, std::span<const std::string_view> own) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return "";
  std::vector<std::string> names;
  for (const Io::Entry& entry : list_directory(io, directory)) {
    const bool is_folder = fs::is_directory(directory / entry.name, ignored);
    const auto begins = [&](std::string_view name) { return entry.name.starts_with(name); };
    if (std::ranges::any_of(own, begins) || !is_in_the_way(io, directory / entry.name, is_folder)) continue;
    names.push_back(entry.name + (is_folder ? "/" : ""));
  }
  return some_of(names, 3);
}

}  // namespace ripstop
