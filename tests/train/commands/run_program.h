// Runs the program as a user does.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <source_location>
#include <stdexcept>
#include <string>

#include "tests/data/scratch_directory.h"
#include "tests/expect_has.h"

namespace ripstop {

struct ProgramRun {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// The program of the build that this test belongs to.
inline std::string ripstop_program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../ripstop").lexically_normal();
}

/// Runs `ripstop ARGUMENTS` in a shell. `before` may pipe text into it or set its environment.
inline ProgramRun run_program(const std::string& arguments, const std::string& before = "") {
  const ScratchDirectory scratch;
  const std::string command = before + " '" + ripstop_program() + "' " + arguments + " >'" +
                              (scratch / "out").string() + "' 2>'" + (scratch / "err").string() + "'";
  const int status = std::system(command.c_str());
  ProgramRun run;
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  run.out = read_bytes(scratch / "out");
  run.err = read_bytes(scratch / "err");
  return run;
}

/// Expects that the program did its work, and returns `run`.
inline ProgramRun expect_success(const ProgramRun& run,
                                 const std::source_location& place = std::source_location::current()) {
  const testing::ScopedTrace trace(place.file_name(), static_cast<int>(place.line()), "success is expected");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  return run;
}

/// Expects that the program ended with `exit_code` and `part` in its message.
inline void expect_exit(const ProgramRun& run, int exit_code, const std::string& part,
                        const std::source_location& place = std::source_location::current()) {
  const testing::ScopedTrace trace(place.file_name(), static_cast<int>(place.line()), "an error is expected");
  EXPECT_EQ(run.exit_code, exit_code) << run.out;
  EXPECT_HAS(run.err, part);
}

}  // namespace ripstop
