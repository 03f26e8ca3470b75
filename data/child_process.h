// Work in a child process: for libraries that cannot be interrupted.
#pragma once
#include <optional>
#include <string>

#include "model/core/function_ref.h"

namespace ripstop {

/// Runs `work` in a child process and returns the text that it returns. Asks `stop_requested` ten times a
/// second meanwhile; if it says yes, kills the child and returns nullopt. An Error that `work` throws is
/// thrown here; Error(kResources) if the child is killed by someone else, as the system does if memory runs
/// out. The child dies with this process. This process must have no other threads: the child has none of
/// them, and a lock that one of them holds stays locked in the child.
std::optional<std::string> run_in_child(FunctionRef<std::string()> work, FunctionRef<bool()> stop_requested);

}  // namespace ripstop
