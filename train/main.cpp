#include <fmt/core.h>

#include <csignal>

#include "model/core/error.h"
#include "parallel/launch_environment.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/end_failed.h"
#include "train/machine/version.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

constexpr const char* kExitCodes =
    "exit codes: 0 done, 64 command line or config, 65 input data, 70 a bug in ripstop, 74 storage,\n"
    "  75 stopped on a signal or before the time limit: run the same command again,\n"
    "  76 a lost rank, or no progress, 77 loss or gradient not finite, or a check that fails,\n"
    "  78 memory, mesh or machine";

ExitCode run(const Arguments& words) {
  CommandLine line(
      {.name = "ripstop",
       .title = fmt::format("ripstop {}: trains LLaMA-style transformers on a mesh of ranks", version()),
       .version = fmt::format("ripstop {} ({})", version(), git_commit()),
       .closing = kExitCodes});
  // --help shows the verbs in this order.
  for (const auto add : {add_config_table, add_check, add_checkpoint, add_doctor, add_evaluate, add_plan,
                         add_prepare, add_report, add_rouge, add_status, add_summarize, add_train})
    add(line);
  return line.run(words);
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  using ripstop::ExitCode;
  ripstop::secure_standard_streams();
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how children end
  try {
    const ExitCode code = ripstop::run({argv + 1, argv + argc});
    // Any other exit code tells more than a failure of standard output.
    if (code == ExitCode::kOk) ripstop::require_output();
    return static_cast<int>(code);
  } catch (const ripstop::CommandLineError& error) {
    ripstop::end_failed(error, ripstop::launch_rank() == 0);
  } catch (...) {
    ripstop::end_failed(ripstop::current_error());
  }
}
