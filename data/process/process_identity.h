// Identity of a process, stored in a file so that other processes can later tell whether it still runs.
#pragma once
#include <map>
#include <string>

namespace ripstop {

/// Facts by name: "host", "boot" (id of the machine's boot), "namespace" (of process ids), "pid", "started"
/// (clock ticks since the boot, so that a later process with the same pid counts as another).
using ProcessIdentity = std::map<std::string, std::string>;

/// The fact named `key`; "" if it is missing.
std::string fact(const ProcessIdentity& process, const char* key);

ProcessIdentity this_process();

enum class ProcessState {
  kRuns,
  kGone,
  kElsewhere,  ///< not known: another machine, boot or container, or hidden by /proc
};
/// Returns kElsewhere also if a fact is missing.
ProcessState state_of(const ProcessIdentity& process);

std::string to_text(const ProcessIdentity& process);
/// Reads lines "key value"; ignores lines without a space.
ProcessIdentity parse_process(const std::string& text);

/// "" if the variable is not set.
std::string environment_variable(const char* name);

/// "process 4711 on node7", for messages.
std::string describe(const ProcessIdentity& process);

}  // namespace ripstop
