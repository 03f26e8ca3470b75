// Which process wrote a file: enough to tell later, on the same machine, whether it still runs.
#pragma once
#include <map>
#include <string>

namespace ripstop {

/// Facts of a process by name: "host", "boot" (of the machine), "namespace" (of process numbers), "pid",
/// "started" (clock ticks since the boot; numbers are used again, so only both identify a process).
using ProcessIdentity = std::map<std::string, std::string>;

ProcessIdentity this_process();

enum class ProcessState {
  kRuns,
  kGone,
  kElsewhere,  ///< on another machine or in another container, where this one cannot look
};
/// The state of `process`. Facts that are missing make it kElsewhere.
ProcessState state_of(const ProcessIdentity& process);

/// Lines "key value", and back. Lines without a space are ignored.
std::string to_text(const ProcessIdentity& process);
ProcessIdentity parse_process(const std::string& text);

/// The environment variable `name`; "" if it is not set.
std::string environment_variable(const char* name);

/// "process 4711 on node7".
std::string describe(const ProcessIdentity& process);

}  // namespace ripstop
