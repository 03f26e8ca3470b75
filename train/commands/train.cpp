// ripstop train: one training run.
#include <fmt/core.h>

#include <cstdio>

#include "train/commands/commands.h"
#include "train/run/stop_signal.h"
#include "train/run/trainer.h"

namespace ripstop {

ExitCode run_train(CLI::App& app, const Arguments& arguments) {
  std::string config_file;
  std::vector<std::string> overrides;
  app.add_option("CONFIG", config_file, "TOML file")->required();
  app.add_option("overrides", overrides, "section.key=value, stronger than the file");
  set_example(app,
              "ripstop train configs/quickstart.toml run.directory=runs/first\n"
              "  srun ripstop train configs/xsum-scratch.toml mesh.tensor=8");
  parse(app, arguments);

  // Before MPI starts, which takes seconds on many nodes: a signal that comes then must not kill the rank.
  const StopSignal stop;
  MpiWorld world;
  return world.run([&] {
    TrainerOptions options{.config = load_run_config(config_file, overrides),
                           .argv = {"ripstop", "train"},
                           .say = {},
                           .stop_requested = [&] { return stop.requested(); }};
    options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
    options.say = [](const std::string& line) {
      fmt::print("{}\n", line);
      std::fflush(stdout);
    };
    return Trainer(options, world).run();
  });
}

}  // namespace ripstop
