// The identity of a process: it can be stored in a file, and later tells on the same machine whether the
// process still runs.
#pragma once
#include <map>
#include <string>

namespace ripstop {

/// Facts about a process, by name: "host", "boot" (id of the machine's boot), "namespace" (of process ids),
/// "pid", "started" (clock ticks since the boot). With "started", a later process with the same pid is not
/// taken for this one.
using ProcessIdentity = std::map<std::string, std::string>;

/// The identity of the calling process.
ProcessIdentity this_process();

enum class ProcessState {
  kRuns,
  kGone,
  kElsewhere,  ///< the process is on another machine or in another container, so its state is unknown
};
/// The state of `process` now; kElsewhere also if a fact is missing.
ProcessState state_of(const ProcessIdentity& process);

/// Writes the facts as lines "key value".
std::string to_text(const ProcessIdentity& process);
/// Reads the facts from lines "key value"; ignores lines without a space.
ProcessIdentity parse_process(const std::string& text);

/// The value of the environment variable `name`; "" if it is not set.
std::string environment_variable(const char* name);

/// Text for a message: "process 4711 on node7".
std::string describe(const ProcessIdentity& process);

}  // namespace ripstop
