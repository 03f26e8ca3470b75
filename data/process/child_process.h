#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/core/function_ref.h"

namespace ripstop {

/// Runs `work`, such as a library call that cannot be interrupted, in a child process and returns its result.
/// Calls stop_requested() ten times a second; when it is true, kills the child and returns nullopt. The child
/// dies with this process. No other thread may work meanwhile: the child would inherit that thread's locks,
/// but not the thread. Throws what `work` throws, as current_error();
/// Error(kResources) if no child can be started or a signal ends it, for example when memory runs out.
std::optional<std::string> run_in_child(FunctionRef<std::string()> work, FunctionRef<bool()> stop_requested);

/// Runs the program words[0] from PATH, without a shell, with `environment` added to this process's own.
/// Returns the first 64 KiB of its standard output; nullopt if the program cannot be started, does not end
/// with exit code 0, or is killed after `seconds`. Other threads may run meanwhile.
std::optional<std::string> output_of_program(
    const std::vector<std::string>& words, double seconds,
    const std::vector<std::pair<std::string, std::string>>& environment = {});

}  // namespace ripstop
