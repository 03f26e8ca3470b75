#include <cstdio>
#include <optional>
#include <utility>

#include "data/files/directory.h"
#include "parallel/agreement.h"
#include "parallel/launch_environment.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/end_failed.h"
#include "train/config/nearest_name.h"
#include "train/report/live_line.h"
#include "train/run/run_directory.h"
#include "train/run/step_deadline.h"
#include "train/run/stop_signal.h"
#include "train/run/time_limit.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

struct TrainArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  bool allow_changes = false;
};

RunConfig read_config(const TrainArguments& given, const StopSignal& stop) {
  // A signal ends the process while a pipe is read, because such a read may wait for ever.
  std::optional<StopEndsProcess> while_reading;
  if (!is_file(given.config_file)) while_reading.emplace(stop);
  return load_run_config(given.config_file, given.overrides);
}

// Throws Error(kUsage) for the config file of a copied or moved run, unless run.directory is overridden, and
// Error(kInputData) if a data set is absent and there is a hint. Returns `notes` and, on rank 0, the
// note_of_other_directory. Collective.
std::vector<std::string> check_config(const TrainArguments& given, const RunConfig& config,
                                      std::vector<std::string> notes, Communicator& world) {
  if (!is_overridden("run.directory", given.overrides))
    check_names_own_directory(posix_io(), given.config_file, config);
  do_on_rank_0(world, [&] {
    // Refuses only what has a hint: opening the data sets finds other errors.
    for (const std::string& data : config.data.all())
      if (std::string hint = hint_for_absent_set(config.data, data); !hint.empty())
        throw Error(ExitCode::kInputData, fmt::format("{}: there is no such data set", data),
                    std::move(hint));
    // The note says that run.directory is new, so the note comes before the run makes that directory.
    if (std::string note = note_of_other_directory(posix_io(), given.config_file, config); !note.empty())
      notes.push_back(std::move(note));
  });
  return notes;
}

ExitCode train(const TrainArguments& given) {
  // Handles signals before MPI starts, which may take minutes on many nodes: no signal may kill the rank.
  const StopSignal stop(StopFor::kCheckpoint);
  StartTimes times;
  times.enter(&StartupSeconds::program);
  std::vector<std::string> deadline_notes;
  std::optional<Deadline> deadline;
  if (launch_rank() == 0) deadline = find_deadline(deadline_notes);
  // An error in the config waits for MPI, so that one rank reports it for all.
  RunConfig config;
  std::optional<Error> refusal;
  MpiOptions mpi = world_options("train");
  try {
    config = read_config(given, stop);
    mpi.directory = config.run.directory;
    mpi.deadline_seconds = StepDeadline(config.run.deadline_seconds).outside_steps();
  } catch (const Error& error) {
    refusal = error;
  }
  times.enter(&StartupSeconds::mpi);
  MpiWorld world(mpi);
  times.enter(&StartupSeconds::other);
  return world.run([&] {
    if (refusal) throw Error(*refusal);
    std::vector<std::string> notes =
        check_config(given, config, std::move(deadline_notes), world.communicator());
    LiveLine screen(stdout);
    TrainerOptions options{.config = config,
                           .argv = {"ripstop", "train", given.config_file},
                           .notes = std::move(notes),
                           .say = [&](const std::string& line) { screen.print(line); },
                           .stop_requested = [&] { return stop.requested(); },
                           .deadline = deadline,
                           .allow_changes = given.allow_changes,
                           .start_times = times,
                           .live = &screen};
    options.argv.insert(options.argv.end(), given.overrides.begin(), given.overrides.end());
    if (given.allow_changes) options.argv.emplace_back("--allow-changes");
    auto trainer = Trainer::make(options, world);
    try {
      return trainer->run();
    } catch (...) {
      // Skips the destructor, which would wait for storage that never answers: the error must be printed.
      if (!trainer->can_be_destroyed()) static_cast<void>(trainer.release());
      throw;
    }
  });
}

}  // namespace

void add_train(CommandLine& line) {
  Verb verb = line.verb("train", "one training run, alone or on all ranks of mpirun or srun");
  const auto given = std::make_shared<TrainArguments>();
  verb.path("CONFIG", given->config_file, "TOML file").required();
  verb.option("overrides", given->overrides, "section.key=value, stronger than the file");
  verb.flag(
      "--allow-changes", given->allow_changes,
      "this start may change optimizer.learning_rate and weight_decay, train.max_grad_norm, [schedule], "
      "data.weights, and lower train.steps or train.epochs, of a run that has begun; later starts go on so "
      "without it");
  verb.set_example(
      "ripstop train configs/quickstart.toml run.directory=runs/first\n"
      "  srun ripstop train configs/xsum-scratch.toml mesh.tensor=8");
  verb.set_action([given] { return train(*given); });
}

}  // namespace ripstop
