// Runs work in child processes: calls of libraries that cannot be interrupted, and other programs.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/core/function_ref.h"

namespace ripstop {

/// Runs `work` in a child process and returns its result. Calls stop_requested() ten times a second; once it
/// returns true, kills the child and returns nullopt. The child dies with this process. Requires that no
/// other thread of this process works meanwhile: the child has no copy of such a thread, but may have a copy
/// of a lock that the thread holds.
/// Throws the Error that `work` throws.
/// Throws Error(kResources) if a signal ends the child, as when memory runs out.
std::optional<std::string> run_in_child(FunctionRef<std::string()> work, FunctionRef<bool()> stop_requested);

/// Runs the program `words`, searched on PATH without a shell, with `environment` added to the environment of
/// this process. Returns the first 64 KiB of its standard output. Returns nullopt if the program cannot be
/// started, or ends with an exit code other than 0. Kills the program and returns nullopt if it does not end
/// within `seconds`. Uses posix_spawn, which copies no memory, so this process may have other threads.
std::optional<std::string> output_of_program(
    const std::vector<std::string>& words, double seconds,
    const std::vector<std::pair<std::string, std::string>>& environment = {});

}  // namespace ripstop
