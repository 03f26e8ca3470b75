#include "train/commands/end_process.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "parallel/launcher.h"
#include "train/commands/fatal_line.h"
#include "train/report/terminal.h"

namespace ripstop {

void end_failed(const Error& error, bool speaks) {
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

MpiOptions world_options(const std::string& command, const std::filesystem::path& directory) {
  return {.command = command, .directory = directory, .end_process = [](const Error& error) {
            end_failed(error);
          }};
}

}  // namespace ripstop
