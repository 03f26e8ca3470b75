// Child processes, for libraries that cannot be interrupted and for other programs.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/core/function_ref.h"

namespace ripstop {

/// Runs `work` in a child process and returns its result. Calls `stop_requested` ten times a second; once it
/// returns true, kills the child and returns nullopt. Throws the Error that `work` throws, or
/// Error(kResources) if a signal ends the child, as when memory runs out. The child dies with this process.
/// No other thread of this process may work meanwhile: the child has no copy of it, but of the locks that it
/// holds.
std::optional<std::string> run_in_child(FunctionRef<std::string()> work, FunctionRef<bool()> stop_requested);

/// Runs the program `words` (looked for on PATH, without a shell) with `environment` added to this process's,
/// and returns the first 64 KiB of its standard output. Returns nullopt if it cannot be started, ends with
/// another code than 0, or does not end within `seconds`; then it is killed. Uses posix_spawn, which copies
/// no memory, so this process may have other threads.
std::optional<std::string> output_of_program(
    const std::vector<std::string>& words, double seconds,
    const std::vector<std::pair<std::string, std::string>>& environment = {});

}  // namespace ripstop
