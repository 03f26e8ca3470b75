// Work in a child process: for libraries that cannot be interrupted, and for other programs.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/core/function_ref.h"

namespace ripstop {

/// Runs `work` in a child process and returns the text that it returns. Asks `stop_requested` ten times a
/// second meanwhile; if it says yes, kills the child and returns nullopt. An Error that `work` throws is
/// thrown here; Error(kResources) if the child is killed by someone else, as the system does if memory runs
/// out. The child dies with this process. This process must have no other threads that work: the child has
/// none of them, and a lock that one of them holds stays locked in the child.
std::optional<std::string> run_in_child(FunctionRef<std::string()> work, FunctionRef<bool()> stop_requested);

/// Runs the program `words` (looked for on PATH, without a shell), with `environment` beside this process's
/// own, and returns the first 64 KiB of what it writes to standard output. nullopt if it cannot be started,
/// ends with another code than 0, or does not end within `seconds`: then it is killed. By posix_spawn, which
/// copies no memory, so this process may have other threads.
std::optional<std::string> output_of_program(
    const std::vector<std::string>& words, double seconds,
    const std::vector<std::pair<std::string, std::string>>& environment = {});

}  // namespace ripstop
