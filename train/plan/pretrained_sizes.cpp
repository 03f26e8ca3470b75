#include "train/plan/pretrained_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "data/files/directory.h"
#include "data/process/shell_word.h"
#include "model/core/error.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/nearest_name.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/exchange/read/open_model.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// A hint on what to give as model.pretrained if `path` does not exist or is no directory.
std::string hint_for_model(const std::string& path) {
  if (is_file(path)) {
    const fs::path folder = folder_of(path);
    if (is_pretrained_model(folder))
      return fmt::format("it is a file of a model: give its directory, model.pretrained={}",
                         shell_word(folder.string()));
    const std::string way = find_foreign_weights(path).way;
    return way.empty() ? "give the directory that has the model's config.json and model.safetensors" : way;
  }
  if (std::string near = hint_for_absent(path, "model.pretrained="); !near.empty()) return near;
  if (looks_like_hub_name(path))
    return fmt::format("nothing is downloaded: give the local directory that `hf download {}` prints",
                       shell_word(path));
  return "give a directory with config.json and model.safetensors, a run, or a checkpoint";
}

}  // namespace

fs::path find_continued(Io& io, const RunConfig& config) {
  const fs::path path = without_slash(config.run.continue_from);
  if (path.empty() || !list_checkpoints(io, fs::path(config.run.directory) / "checkpoints").empty())
    return {};
  const std::string name = path.filename().string();
  try {
    if (is_pretrained_model(path))
      throw Error(
          ExitCode::kUsage, path.string() + ": is a model, and a run is needed here",
          fmt::format("a new run begins with its weights by model.pretrained={}", shell_word(path.string())));
    // step_40 is short for step_00000040.
    fs::path found = name.starts_with("step_") && !path_exists(io, path)
                         ? find_checkpoint(io, folder_of_checkpoint(path), name)
                         : find_checkpoint(io, path, "latest");
    const CheckpointState state = read_manifest(io, found).state;
    require_not_superseded(io, found, state.step, state.takeover);
    return found;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("run.continue_from: {}", error.what()), error.hint());
  }
}

PretrainedOrigin find_pretrained_origin(Io& io, const RunConfig& config) {
  const std::vector<ListedCheckpoint> own =
      list_checkpoints(io, fs::path(config.run.directory) / "checkpoints");
  const auto newest = std::find_if(own.rbegin(), own.rend(), [](const ListedCheckpoint& checkpoint) {
    return checkpoint.manifest.has_value();
  });
  if (newest != own.rend()) return {.directory = newest->directory, .has_begun = true};
  if (fs::path continued = find_continued(io, config); !continued.empty())
    return {.directory = std::move(continued), .has_begun = true};
  const std::string& path = config.model.pretrained;
  // Without the pretrained model, the run can only resume, but all its checkpoints are damaged: report that.
  if (!own.empty() && !directory_exists(io, path))
    throw Error(ExitCode::kStorage, fmt::format("cannot read the newest checkpoint: {}", own.back().problem),
                own.back().hint.empty() ? "run the same command again when the file system answers"
                                        : own.back().hint);
  if (!directory_exists(io, path))
    throw Error(ExitCode::kUsage,
                fmt::format("model.pretrained = \"{}\": {}", path,
                            path_exists(io, path) ? "is not a directory" : "no such directory"),
                hint_for_model(path));
  return {.directory = find_stored_model(io, path, "best")};
}

ModelConfig read_model_sizes(Io& io, const fs::path& directory) {
  return is_pretrained_model(directory) ? read_pretrained_config(directory)
                                        : read_manifest(io, directory).state.model;
}

std::vector<int32_t> read_model_ends(Io& io, const fs::path& directory) {
  if (is_pretrained_model(directory))
    return read_end_tokens(directory, read_pretrained_config(directory).vocab_size).ids;
  const std::string config = read_manifest(io, directory).state.config;
  try {
    return parse_run_config(config, directory.string()).generation.eos_token_id;
  } catch (const Error&) {
    return {};  // another version's config: its weights can be read, and check_resumable() refuses a resume
  }
}

std::string end_tokens_note(const RunConfig& config, const std::vector<int32_t>& ends,
                            const Tokenizer& tokenizer) {
  const bool has_other_ids = config.generation.eos_token_id != ends;
  if (ends.empty() || has_other_ids || std::ranges::count(ends, tokenizer.eos()) > 0) return "";
  return fmt::format(
      "summaries of the data set end with the token {} {}, texts of {} at {}: the run learns the first, and "
      "its texts end at any of these",
      tokenizer.eos(), tokenizer.piece(tokenizer.eos()).name, config.model.pretrained, fmt::join(ends, ", "));
}

void read_pretrained_for_plan(const RunConfig& config, RunTarget& target) {
  if (config.model.pretrained.empty()) return;
  const PretrainedOrigin origin = find_pretrained_origin(posix_io(), config);
  target.pretrained = read_model_sizes(posix_io(), origin.directory);
  if (!origin.has_begun) open_first_adapters(config.lora, *target.pretrained);
  target.pretrained_ends = read_model_ends(posix_io(), origin.directory);
}

}  // namespace ripstop
