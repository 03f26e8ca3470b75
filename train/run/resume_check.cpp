#include "train/run/resume_check.h"

#include <algorithm>

#include "data/process/shell_word.h"
#include "model/core/error.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

RunConfig stored_config(const Checkpoint& checkpoint) {
  const std::string manifest = (checkpoint.directory / Manifest::kFileName).string();
  try {
    return parse_run_config(checkpoint.manifest.state.config, manifest + ": config");
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
                                        const ModelConfig& model) {
  if (checkpoint.manifest.state.step == 0)
    throw Error(ExitCode::kUsage,
                fmt::format("{} is an imported model, not a run", checkpoint.directory.string()),
                "give another run.directory, and the imported directory as model.pretrained");
  ResumableCheckpoint saved{
      .config = stored_config(checkpoint), .mesh = checkpoint.manifest.mesh, .differences = {}};
  std::vector<ConfigDifference> differences = compare(saved.config, config);
  // Compares sizes, too, because a config may leave them to the data set or to a pretrained model.
  for (ConfigDifference& difference : compare_models(checkpoint.manifest.state.model, model))
    if (!has_key(differences, difference.key)) differences.push_back(std::move(difference));
  saved.differences = accept_differences(checkpoint.directory.string(), std::move(differences));
  return saved;
}

std::vector<std::string> resume_notes(const ResumableCheckpoint& saved, const MeshSizes& mesh) {
  std::vector<std::string> notes;
  bool other_generation = false;
  for (const ConfigDifference& difference : saved.differences) {
    const bool is_read = difference.key != "lora.adapter";
    notes.push_back(difference.text() +
                    (is_read ? "" : ", of which nothing is read: the adapters are those of the checkpoint"));
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
      fmt::format("begin a new run from here or before: run.continue_from={} run.directory=NEW",
                  shell_word(source)));
}

std::string rate_jump(const RunConfig& config, int64_t step, int64_t old_steps, int64_t steps) {
  const auto rate = [&](int64_t at, int64_t of) {
    return config.optimizer.learning_rate * learning_rate_factor(config.schedule, at, of);
  };
  if (step == 0 || step >= steps || rate(step + 1, old_steps) == rate(step + 1, steps)) return "";
  return fmt::format(
      "more steps stretch the schedule: the learning rate was {:.2e} in step {} and is {:.2e} in step {}",
      rate(step, old_steps), step, rate(step + 1, steps), step + 1);
}

}  // namespace ripstop
