// ripstop train: does one training run.
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "parallel/agreement.h"
#include "parallel/launcher.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/end_process.h"
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
};

// Nothing is there, and a data set of nearly that name is. Other mistakes show when the data set is opened.
void check_data_is_near(const RunConfig& config) {
  const std::string& directory = config.data.directory;
  if (std::string hint = hint_for_absent(directory, "data.directory=", "train.h5"); !hint.empty())
    throw Error(ExitCode::kInputData, fmt::format("{}: there is no such data set", directory),
                std::move(hint));
}

RunConfig read_config(const TrainArguments& given, const StopSignal& stop) {
  // A pipe may never get a writer.
  std::error_code ignored;
  std::optional<StopEndsProcess> while_reading;
  if (!std::filesystem::is_regular_file(given.config_file, ignored)) while_reading.emplace(stop);
  return load_run_config(given.config_file, given.overrides);
}

// The config, or why there is none. It is read before MPI starts, which has the deadline of the config too;
// but its error is one of all ranks, and is told by one when they can agree.
struct ConfigOrError {
  std::optional<RunConfig> config;
  std::optional<Error> error;

  const RunConfig& value() const {
    if (error) throw Error(*error);
    return *config;
  }
};

ConfigOrError try_to_read_config(const TrainArguments& given, const StopSignal& stop) {
  try {
    return {read_config(given, stop), std::nullopt};
  } catch (const Error& error) {
    return {std::nullopt, error};
  }
}

MpiOptions options_of_world(const ConfigOrError& read) {
  MpiOptions options = world_options("train");
  if (!read.config) return options;
  options.directory = read.config->run.directory;
  options.deadline_seconds = StepDeadline(read.config->run.deadline_seconds).outside_steps();
  return options;
}

ExitCode train(const TrainArguments& given) {
  // Watch for signals before MPI starts. MPI takes seconds on many nodes, and a signal must not kill the rank
  // then.
  const StopSignal stop(StopFor::kCheckpoint);
  StartTimes times;
  times.enter(&StartupSeconds::program);
  // Before MPI starts, too: some of its networks forbid to start other programs.
  std::vector<std::string> deadline_notes;
  std::optional<Deadline> deadline;
  if (launch_rank() == 0) deadline = find_deadline(deadline_notes);
  const ConfigOrError read = try_to_read_config(given, stop);
  times.enter(&StartupSeconds::mpi);
  MpiWorld world(options_of_world(read));
  times.enter(&StartupSeconds::other);
  return world.run([&] {
    LiveLine screen(stdout);
    TrainerOptions options{.config = read.value(),
                           .argv = {"ripstop", "train", given.config_file},
                           .notes = {},
                           .say = [&](const std::string& line) { screen.print(line); },
                           .stop_requested = [&] { return stop.requested(); },
                           .deadline = deadline,
                           .start_times = times,
                           .live = &screen};
    options.argv.insert(options.argv.end(), given.overrides.begin(), given.overrides.end());
    // A path on the command line is meant. One in the file may be that of the run from which it was copied.
    if (!is_overridden("run.directory", given.overrides))
      check_names_own_directory(posix_io(), given.config_file, options.config);
    do_and_agree(world.communicator(), [&] {
      if (world.communicator().rank() != 0) return;
      check_data_is_near(options.config);
      options.notes = deadline_notes;
      // Now: when the run begins, its directory is there.
      if (std::string note = note_of_other_directory(posix_io(), given.config_file, options.config);
          !note.empty())
        options.notes.push_back(std::move(note));
    });
    auto trainer = std::make_unique<Trainer>(options, world);
    try {
      return trainer->run();
    } catch (const Error&) {
      // The error must be told, and ends the process, though storage may never answer.
      if (!trainer->can_be_destroyed()) static_cast<void>(trainer.release());
      throw;
    }
  });
}

}  // namespace

void add_train(CommandLine& line) {
  Verb verb = line.verb("train", "one training run, alone or on all ranks of mpirun or srun");
  const auto given = std::make_shared<TrainArguments>();
  verb.option("CONFIG", given->config_file, "TOML file").required();
  verb.option("overrides", given->overrides, "section.key=value, stronger than the file");
  verb.set_example(
      "ripstop train configs/quickstart.toml run.directory=runs/first\n"
      "  srun ripstop train configs/xsum-scratch.toml mesh.tensor=8");
  verb.set_action([given] { return train(*given); });
}

}  // namespace ripstop
