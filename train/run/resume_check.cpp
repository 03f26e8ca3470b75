#include "train/run/resume_check.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "data/process/shell_word.h"
#include "data/text/utf8.h"
#include "model/core/error.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/config_keys.h"
#include "train/report/human_text.h"
#include "train/run/validation.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

// The config of `checkpoint`; if the checkpoint is of the run in `own`, with the changes that later starts
// accepted (Takeovers).
RunConfig stored_config(const Checkpoint& checkpoint, const std::filesystem::path& own) {
  const CheckpointState& state = checkpoint.manifest.state;
  const std::filesystem::path folder = folder_of_checkpoint(checkpoint.directory);
  const std::string manifest = (checkpoint.directory / Manifest::kFileName).string();
  std::vector<ConfigDifference> later;
  if (folder == own / "checkpoints")
    later = Takeovers::read(posix_io(), folder).changes_after(state.takeover);
  try {
    return with_changes(parse_run_config(state.config, manifest + ": config"), later);
  } catch (const Error& error) {
    throw Error(ExitCode::kStorage,
                fmt::format("this version of ripstop cannot read the config that the checkpoint stores: {}",
                            error.what()),
                fmt::format("go on with the version that wrote it: {}", checkpoint.manifest.written_by));
  }
}

bool has_key(const std::vector<ConfigDifference>& differences, std::string_view key) {
  return std::ranges::count(differences, key, &ConfigDifference::key) > 0;
}

using Words = std::vector<std::string>;

Words words_of(const std::string& hashes) {
  const auto words = words_in(hashes);
  return {words.begin(), words.end()};
}

// The names of the elements of `all` that `others` lacks, or has less often. `names`: for each of `all`.
Words missing(const Words& all, const Words& others, const Words& names) {
  Words found;
  for (size_t i = 0; i < all.size(); ++i)
    if (std::count(all.begin(), all.begin() + static_cast<ptrdiff_t>(i) + 1, all[i]) >
        std::ranges::count(others, all[i]))
      found.push_back(names[i]);
  return found;
}

// "'a', 'b'".
std::string quoted(const Words& names) {
  return fmt::format("'{}'", fmt::join(names, "', '"));
}

// "'c' is gone from data.directories, and 'd', 'e' are new in it".
std::string changed_text(const Words& gone, const Words& added) {
  const auto text = [](const Words& names, const char* what) {
    return names.empty() ? "" : fmt::format("{} {} {}", quoted(names), names.size() > 1 ? "are" : "is", what);
  };
  return text(gone, "gone from data.directories") + (gone.empty() || added.empty() ? "" : ", and ") +
         text(added, gone.empty() ? "new in data.directories" : "new in it");
}

// Refuses data sets in another order. `began`: the hashes in the run's order; `now`: in the order of `data`.
[[noreturn]] void refuse_order(const Words& began, const Words& now, const DataSection& data) {
  DataSection ordered = data;
  Words left = now;
  for (size_t i = 0; i < began.size(); ++i) {
    const auto place = static_cast<size_t>(std::ranges::find(left, began[i]) - left.begin());
    left[place].clear();  // another set may have the same content
    ordered.directories[i] = data.directories[place];
    if (!data.weights.empty()) ordered.weights[i] = data.weights[place];
  }
  RunConfig config;
  config.data = ordered;
  std::string hint = "give each set its place:";
  for (const char* key : {"directories", "weights"})
    if (const std::string value = written_value(*find_config_key("data", key), config); !value.empty())
      hint += " " + shell_word(fmt::format("data.{}={}", key, value));
  throw Error(ExitCode::kUsage,
              fmt::format("the order of data.directories changed: {} -> {}", quoted(ordered.directories),
                          quoted(data.directories)),
              hint);
}

// Refuses the data sets of `run`, whose hashes are `now`. The run began with `names`, with hashes `began`.
[[noreturn]] void refuse_sets(const Words& began, const Words& names, const Words& now,
                              const ResumingRun& run) {
  const DataSection& data = run.config.data;
  const Words gone = missing(began, now, names), added = missing(now, began, data.all());
  if (gone.empty() && added.empty()) refuse_order(began, now, data);
  const RunSection& of = run.config.run;
  std::string hint;
  if (!gone.empty() && began.size() > 1)
    hint = fmt::format("give all sets of the run{}, or ",
                       data.weights.empty() ? "" : ", of weight 0 in data.weights to draw no more of one");
  hint += fmt::format("begin a new run with its weights on other data: model.pretrained={} run.directory=NEW",
                      shell_word(run.continues ? of.continue_from : of.directory));
  std::vector<size_t> replaced;
  for (size_t set = 0; set < std::min(began.size(), now.size()); ++set)
    if (began[set] != now[set]) replaced.push_back(set);
  if (began.size() == now.size() && replaced.size() == gone.size())
    throw Error(ExitCode::kUsage,
                fmt::format("the data set in {} is not the one this run began with", data.all()[replaced[0]]),
                hint);
  throw Error(ExitCode::kUsage, changed_text(gone, added), hint);
}

// Refuses other data, validation sets or tokenizers than those of `saved`. `then`: [data] of its config.
void check_data(const CheckpointState& saved, const DataSection& then, const ResumingRun& run) {
  const Words began = words_of(saved.data_content_hash), names = then.all();
  const size_t places = saved.cursor.sets.size();
  if (began.size() != names.size() || places != (began.size() > 1 ? began.size() : 0))
    fail(ExitCode::kStorage, "the checkpoint has {}, places in {} and hashes of {}",
         counted(std::ssize(names), "data set"), places, began.size());
  if (const Words now = words_of(content_hashes(run.datasets)); began != now)
    refuse_sets(began, names, now, run);
  const auto refuse = [&](const std::string& what) {
    throw Error(ExitCode::kUsage, what + " is not the one this run began with",
                "a new run is a new directory");
  };
  if (saved.tokenizer_sha256 != run.datasets.front().header().tokenizer_sha256)
    refuse("the tokenizer of " + run.config.data.first());
  // Validation sets are compared only if both starts have one: a resumed run may start or stop validating.
  const Words validated = words_of(saved.validation_content_hash), now = words_of(run.validation);
  for (size_t set = 0; set < std::min(validated.size(), now.size()); ++set)
    if (validated[set] != ValidationSet::kNone && now[set] != ValidationSet::kNone &&
        validated[set] != now[set])
      refuse("the validation set in " + run.config.data.all()[set]);
}

// Throws if `checkpoint` is from after step `steps`, or if a run that continues it would make no step.
void check_steps_left(const Checkpoint& checkpoint, const ResumingRun& run, int64_t steps) {
  const int64_t step = checkpoint.manifest.state.step;
  if (run.continues && step >= steps)
    throw Error(ExitCode::kUsage,
                fmt::format("{} has done {} steps, and the new run has {} in all",
                            checkpoint.directory.string(), step, steps),
                "give more train.steps, or an earlier checkpoint: run.continue_from=RUN/checkpoints/step_N");
  if (step <= steps) return;
  const DataCursor& at = checkpoint.manifest.state.cursor;
  const TrainSection& train = run.config.train;
  throw Error(ExitCode::kUsage,
              train.epochs ? fmt::format("the run has done {} steps and is in epoch {}, train.epochs is {}",
                                         step, at.epoch + (at.sequence > 0 ? 1 : 0), *train.epochs)
                           : fmt::format("the run has done {} steps, train.steps is {}", step, steps),
              "give at least as many, or another run.directory for a new run");
}

// Compares config and model with `saved`.config and the checkpoint's model, and sets saved.differences.
void check_config(const Checkpoint& checkpoint, const ResumingRun& run, ResumableCheckpoint& saved) {
  std::vector<ConfigDifference> differences = compare(saved.config, run.config);
  // Compares sizes, too, because a config may leave them to the data set or to a pretrained model.
  for (ConfigDifference& difference : compare_models(checkpoint.manifest.state.model, run.model))
    if (!has_key(differences, difference.key)) differences.push_back(std::move(difference));
  saved.differences = accept_differences(checkpoint.directory.string(), std::move(differences),
                                         /*has_weights=*/true, saved.allow_changes);
}

// Whether run.profile_steps ends at or before `step`. `written`: the key's value as TOML.
bool has_passed(const std::string& written, int64_t step) {
  const StepRange steps = parse_step_range(written.substr(1, written.size() - 2));  // without its quotes
  return steps.last > 0 && steps.last <= step;
}

}  // namespace

ResumableCheckpoint check_resumable(const Checkpoint& checkpoint, const ResumingRun& run,
                                    TrainingData* data) {
  const CheckpointState& state = checkpoint.manifest.state;
  if (state.step == 0)
    throw Error(ExitCode::kUsage,
                fmt::format("{} is an imported model, not a run", checkpoint.directory.string()),
                "give another run.directory, and the imported directory as model.pretrained");
  ResumableCheckpoint saved{.config = stored_config(checkpoint, run.config.run.directory),
                            .mesh = checkpoint.manifest.mesh,
                            .differences = {},
                            .allow_changes = run.allow_changes || run.continues};
  // Causes come first: data sets before data.weights, the config before the order of the data.
  if (data) check_data(state, saved.config.data, run);
  const bool same_order = data && (state.pack_plan_hash.empty() || state.pack_plan_hash == data->plan_hash);
  if (same_order) count_run(*data, run.datasets, run.config, state);
  check_config(checkpoint, run, saved);
  if (data && !same_order)
    throw Error(ExitCode::kStorage, "the order of the data differs from the checkpoint's",
                "another version of ripstop began this run, and packs sequences differently");
  if (const auto steps = data ? std::optional(data->steps) : run.config.train.steps)
    check_steps_left(checkpoint, run, *steps);
  if (!data) return saved;
  TrainingData then = *data;
  count_run(then, run.datasets, saved.config, state);
  saved.steps = then.steps;
  if (!saved.allow_changes) check_decay(checkpoint, run.config, saved.steps, data->steps);
  return saved;
}

std::vector<ConfigDifference> ResumableCheckpoint::changes() const {
  std::vector<ConfigDifference> changes = differences;
  std::erase_if(changes, [&](const ConfigDifference& each) { return !is_change(each); });
  return changes;
}

std::vector<std::string> resume_notes(const ResumableCheckpoint& saved, const MeshSizes& mesh, int64_t step) {
  std::vector<std::string> notes;
  bool other_generation = false, other_units = false;
  for (const ConfigDifference& difference : saved.differences) {
    std::string note = difference.text();
    if (difference.key == "lora.adapter")
      note += ", of which nothing is read: the adapters are those of the checkpoint";
    if (difference.key == "run.continue_from" && !difference.new_value.empty())
      note += ", of which nothing is read: the run has a checkpoint of its own";
    if (difference.key == "run.profile_steps" && has_passed(difference.new_value, step))
      note += fmt::format(", of which nothing is traced: the run is at step {}", step);
    if (saved.is_change(difference)) note += fmt::format(", from step {} on", step + 1);
    notes.push_back(std::move(note));
    other_generation |= difference.key.starts_with("generation.");
    // Without a pipeline "auto" is true.
    other_units |= difference.key == "train.reshard_after_forward" &&
                   (mesh.pipeline > 1 || difference.old_value == "false" || difference.new_value == "false");
  }
  const bool other_mesh = saved.mesh != mesh;
  // These differences may alter the memory that is left for an "auto" micro-batch.
  const bool other_memory =
      !saved.config.train.micro_batch_sequences &&
      (other_generation || other_units || has_key(saved.differences, "train.recompute"));
  if (other_mesh || other_memory || has_key(saved.differences, "train.micro_batch_sequences"))
    notes.push_back(fmt::format(
        "{}: sums are rounded in another order, so losses agree with those of an unbroken run to {}, not bit "
        "for bit",
        other_mesh ? fmt::format("the mesh was {} and is {}", saved.mesh.to_text(), mesh.to_text())
                   : "the micro-batch may be another one",
        saved.config.precision.compute == FloatChoice::kFloat32 ? "about 1e-5" : "the digits of bfloat16"));
  if (other_generation)
    notes.emplace_back("ROUGE of validations is measured with other [generation] settings than before");
  return notes;
}

void check_decay(const Checkpoint& checkpoint, const RunConfig& config, int64_t old_steps, int64_t steps) {
  const ScheduleSection& schedule = config.schedule;
  const int64_t step = checkpoint.manifest.state.step, stable = old_steps - schedule.decay_steps(old_steps);
  const auto factor = [&](int64_t of) { return learning_rate_factor(schedule, step, of); };
  // The rate never rises after the warm-up, so if the rate of step `step` is unchanged, all before it are.
  if (schedule.kind != ScheduleKind::kWsd || factor(old_steps) == factor(steps)) return;
  std::string source = config.run.directory;
  for (const ListedCheckpoint& each : list_checkpoints(posix_io(), checkpoint.directory.parent_path()))
    if (each.manifest && each.step <= stable + 1) source = each.directory.string();
  throw Error(
      ExitCode::kUsage,
      fmt::format(
          "{} is at step {}, and its learning rate has begun to fall after step {}: more steps cannot "
          "lengthen the part before",
          config.run.directory, step, stable + 1),
      fmt::format("begin a new run: run.continue_from={} run.directory=NEW", shell_word(source)));
}

std::string rate_jump(const RunConfig& old_config, const RunConfig& config, int64_t step, int64_t old_steps,
                      int64_t steps) {
  const auto rate = [](const RunConfig& of, int64_t at, int64_t in) {
    return of.optimizer.learning_rate * learning_rate_factor(of.schedule, at, in);
  };
  const double now = rate(config, step + 1, steps), before = rate(old_config, step, old_steps);
  const bool is_as_planned =
      rate(config, step, steps) == before || rate(old_config, step + 1, old_steps) == now;
  if (step == 0 || step >= steps || is_as_planned) return "";
  const bool is_stretched = old_config.optimizer.learning_rate == config.optimizer.learning_rate &&
                            old_config.schedule == config.schedule && old_steps < steps;
  return fmt::format("{}the learning rate was {:.2e} in step {} and is {:.2e} in step {}",
                     is_stretched ? "more steps stretch the schedule: " : "", before, step, now, step + 1);
}

}  // namespace ripstop
