// The identity of a process, to store in a file and later ask, on the same machine, whether it still runs.
#pragma once
#include <map>
#include <string>

namespace ripstop {

/// Facts of a process by name: "host", "boot" (id of the machine's boot), "namespace" (of process ids),
/// "pid", "started" (clock ticks since the boot: with it, a later process with the same pid is told apart).
using ProcessIdentity = std::map<std::string, std::string>;

ProcessIdentity this_process();

enum class ProcessState {
  kRuns,
  kGone,
  kElsewhere,  ///< on another machine or in another container: unknown
};
/// The state of `process`; kElsewhere if facts are missing.
ProcessState state_of(const ProcessIdentity& process);

/// Writes and parses lines "key value". The parser ignores lines without a space.
std::string to_text(const ProcessIdentity& process);
ProcessIdentity parse_process(const std::string& text);

/// The environment variable `name`; "" if it is not set.
std::string environment_variable(const char* name);

/// "process 4711 on node7".
std::string describe(const ProcessIdentity& process);

}  // namespace ripstop
