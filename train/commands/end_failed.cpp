#include "train/commands/end_failed.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "data/text/json_reader.h"
#include "parallel/launch_environment.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

// The message without do_and_agree()'s prefix if it names `rank`: callers show a rank but 0 elsewhere.
std::string without_rank(const Error& error, int64_t rank) {
  const std::string what = error.what(), prefix = fmt::format("rank {}: ", rank);
  return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
}

std::string labelled(const std::string& label, const char* color, const std::string& text,
                     const Terminal& terminal) {
  return (terminal.colors ? fmt::format("\x1b[{}m{}\x1b[0m ", color, label) : label + " ") +
         visible_text(text);
}

}  // namespace

std::string fatal_line(const Error& error, int64_t rank) {
  std::string what = without_rank(error, rank);
  for (size_t at = 0; (at = what.find(";\n", at)) != std::string::npos;) what[at + 1] = ' ';  // joins lines
  std::string line =
      fmt::format("FATAL code={} rank={} step={} what={}", static_cast<int>(error.code()), rank,
                  error.step() ? std::to_string(*error.step()) : "-", text_of_json(what));
  if (!error.hint().empty()) line += " hint=" + text_of_json(error.hint());
  return line;
}

std::string error_text(const Error& error, int64_t rank, const Terminal& terminal) {
  std::string where;
  if (error.step()) where = fmt::format("step {}", *error.step());
  if (rank != 0) where += fmt::format("{}rank {}", where.empty() ? "" : ", ", rank);
  const std::string what = without_rank(error, rank);
  std::string text = labelled("error:", "1;31", where.empty() ? what : where + ": " + what, terminal);
  if (!error.hint().empty()) text += "\n" + labelled("hint:", "1", error.hint(), terminal);
  return text;
}

void end_failed(const Error& error, bool speaks) {
  // Flushes first, so that the error comes last if stdout and stderr go to one file.
  std::fflush(stdout);
  const Terminal terminal = terminal_of(stderr);
  // Clears the terminal's last line, which may be another rank's live line.
  const char* const clear = terminal.rewrites ? "\r\x1b[K" : "";
  if (speaks)
    print_to(
        stderr, "{}{}\n", clear,
        terminal.is_terminal ? error_text(error, launch_rank(), terminal) : fatal_line(error, launch_rank()));
  // The first rank that exits makes the launcher kill the others: give them time to print their own line. A
  // rank that waits here ignores the launcher's SIGTERM, so that it ends with its own exit code.
  std::signal(SIGTERM, SIG_IGN);
  if (launch_size() > 1) std::this_thread::sleep_for(std::chrono::duration<double>(MpiWorld::kSecondsToEnd));
  // exit() would run destructors of static objects, which could wait for MPI.
  _exit(static_cast<int>(error.code()));
}

MpiOptions world_options(const std::string& command) {
  return {.command = command, .end_process = [](const Error& error) { end_failed(error); }};
}

}  // namespace ripstop
