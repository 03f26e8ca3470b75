// The program: runs the verb, catches its exceptions, ends with the exit code.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "parallel/launcher.h"
#include "parallel/mpi_world.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/fatal_line.h"
#include "train/machine/version.h"
#include "train/report/terminal.h"

namespace ripstop {
namespace {

constexpr const char* kExitCodes =
    "exit codes: 0 done, 64 command line or config, 65 input data, 70 a bug in ripstop, 74 storage,\n"
    "  75 stopped on a signal with a checkpoint: run the same command again,\n"
    "  76 a lost rank, or no progress, 77 loss or gradient not finite, or a check that fails,\n"
    "  78 memory, mesh or machine";

// In the order of --help.
ExitCode run(const Arguments& words) {
  CommandLine line(
      {.name = "ripstop",
       .title = fmt::format("ripstop {}: trains LLaMA-2-style transformers on a mesh of ranks", version()),
       .version = fmt::format("ripstop {} ({})", version(), git_commit()),
       .closing = kExitCodes});
  for (const auto add : {add_config_table, add_check, add_checkpoint, add_doctor, add_evaluate, add_plan,
                         add_prepare, add_rouge, add_status, add_summarize, add_train})
    add(line);
  return line.run(words);
}

// Ends the process at once. MPI_Finalize is left out, because it would wait for ranks that do not come.
[[noreturn]] void end_failed(const Error& error, bool speaks = true) {
  // The error must come last, also if both streams go to one file.
  std::fflush(stdout);
  const Terminal terminal = terminal_of(stderr);
  // Another rank may have left its live line.
  const char* const clear = terminal.rewrites ? "\r\x1b[K" : "";
  if (speaks)
    fmt::print(
        stderr, "{}{}\n", clear,
        terminal.is_terminal ? error_text(error, launch_rank(), terminal) : fatal_line(error, launch_rank()));
  std::fflush(stderr);
  // The first rank that exits makes the launcher kill the others: give them time to print their own line.
  if (launch_size() > 1) std::this_thread::sleep_for(std::chrono::duration<double>(MpiWorld::kSecondsToEnd));
  // Destructors of static objects could wait for MPI too.
  _exit(static_cast<int>(error.code()));
}

// Output goes through a buffer, so a full disk shows only here. A script must not take half a report.
void check_output_was_written() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Error(ExitCode::kStorage, "cannot write to standard output", "is the disk full?");
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  using ripstop::Error;
  using ripstop::ExitCode;
  try {
    const ExitCode code = ripstop::run({argv + 1, argv + argc});
    // A run that saved because its terminal was closed cannot write there any more.
    if (code != ExitCode::kRequeue) ripstop::check_output_was_written();
    return static_cast<int>(code);
  } catch (const ripstop::CommandLineError& error) {
    ripstop::end_failed(error, ripstop::launch_rank() == 0);
  } catch (const Error& error) {
    ripstop::end_failed(error);
  } catch (const std::bad_alloc&) {
    ripstop::end_failed(Error(ExitCode::kResources, "out of host memory"));
  } catch (const std::system_error& error) {
    ripstop::end_failed(Error(ExitCode::kStorage, error.what()));
  } catch (const std::exception& error) {
    ripstop::end_failed(Error(ExitCode::kBug, error.what(), "please report this"));
  }
}
