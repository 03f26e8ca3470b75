#include "train/run/resume_check.h"

#include <algorithm>

#include "data/process/shell_word.h"
#include "model/core/error.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/takeovers.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

// The config of `checkpoint`. If it is of the run in `own`, with the changes that later starts accepted
// before they saved another checkpoint.
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
  return std::any_of(differences.begin(), differences.end(),
                     [&](const ConfigDifference& difference) { return difference.key == key; });
}

}  // namespace

ResumableCheckpoint check_stored_config(const Checkpoint& checkpoint, const RunConfig& config,
                                        const ModelConfig& model, bool allow_changes) {
  if (checkpoint.manifest.state.step == 0)
    throw Error(ExitCode::kUsage,
                fmt::format("{} is an imported model, not a run", checkpoint.directory.string()),
                "give another run.directory, and the imported directory as model.pretrained");
  ResumableCheckpoint saved{.config = stored_config(checkpoint, config.run.directory),
                            .mesh = checkpoint.manifest.mesh,
                            .differences = {},
                            .allow_changes = allow_changes};
  std::vector<ConfigDifference> differences = compare(saved.config, config);
  // Compares sizes, too, because a config may leave them to the data set or to a pretrained model.
  for (ConfigDifference& difference : compare_models(checkpoint.manifest.state.model, model))
    if (!has_key(differences, difference.key)) differences.push_back(std::move(difference));
  saved.differences = accept_differences(checkpoint.directory.string(), std::move(differences),
                                         /*has_weights=*/true, allow_changes);
  return saved;
}

std::vector<ConfigDifference> ResumableCheckpoint::changes() const {
  std::vector<ConfigDifference> changes = differences;
  std::erase_if(changes, [&](const ConfigDifference& each) { return !is_change(each); });
  return changes;
}

std::vector<std::string> resume_notes(const ResumableCheckpoint& saved, const MeshSizes& mesh, int64_t step) {
  std::vector<std::string> notes;
  bool other_generation = false;
  for (const ConfigDifference& difference : saved.differences) {
    std::string note = difference.text();
    if (difference.key == "lora.adapter")
      note += ", of which nothing is read: the adapters are those of the checkpoint";
    if (difference.key == "run.continue_from" && !difference.new_value.empty())
      note += ", of which nothing is read: the run has a checkpoint of its own";
    if (saved.is_change(difference)) note += fmt::format(", from step {} on", step + 1);
    notes.push_back(std::move(note));
    other_generation |= difference.key.starts_with("generation.");
  }
  const bool other_mesh = saved.mesh != mesh;
  // Changes of [generation] or train.recompute change the memory left for an "auto" micro-batch.
  const bool other_memory = !saved.config.train.micro_batch_sequences &&
                            (other_generation || has_key(saved.differences, "train.recompute"));
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

void check_steps_left(const Checkpoint& checkpoint, int64_t steps, bool continues) {
  const int64_t step = checkpoint.manifest.state.step;
  if (continues && step >= steps)
    throw Error(ExitCode::kUsage,
                fmt::format("{} has done {} steps, and the new run has {} in all",
                            checkpoint.directory.string(), step, steps),
                "give more train.steps, or an earlier checkpoint: run.continue_from=RUN/checkpoints/step_N");
  if (step > steps)
    throw Error(ExitCode::kUsage, fmt::format("the run has done {} steps, train.steps is {}", step, steps),
                "give at least as many, or another run.directory for a new run");
}

void check_decay(const Checkpoint& checkpoint, const RunConfig& config, int64_t old_steps, int64_t steps) {
  const ScheduleSection& schedule = config.schedule;
  const int64_t step = checkpoint.manifest.state.step, stable = old_steps - schedule.decay_steps(old_steps);
  const auto factor = [&](int64_t of) { return learning_rate_factor(schedule, step, of); };
  // The rate never rises after the warm-up, so if step `step` is as planned anew, all before it are, too.
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
