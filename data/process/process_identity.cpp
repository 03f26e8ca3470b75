#include "data/process/process_identity.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "data/files/whole_file.h"
#include "model/core/number.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

/// The start time in clock ticks since the boot; "" if no such process runs, or /proc hides it. Source:
/// proc(5), /proc/pid/stat, field 22.
std::string start_time(const std::string& pid) {
  const std::string line = first_line("/proc/" + pid + "/stat");
  const size_t name_end = line.rfind(')');  // field 2 may contain spaces and brackets
  if (name_end == std::string::npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22 && fields >> field; ++number)
    if (number == 3 && (field == "Z" || field == "X")) return "";  // a zombie has ended
  return field;
}

/// Whether `pid` runs but /proc hides it: the mount option hidepid=2 hides processes of other users.
bool is_hidden(const std::string& pid) {
  const std::optional<int64_t> number = parse_whole_number(pid);
  if (!number || !first_line("/proc/" + pid + "/stat").empty()) return false;
  return ::kill(static_cast<pid_t>(*number), 0) == 0 || errno == EPERM;
}

}  // namespace

std::string fact(const ProcessIdentity& process, const char* key) {
  const auto found = process.find(key);
  return found == process.end() ? "" : found->second;
}

ProcessIdentity this_process() {
  std::error_code error;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string pid = std::to_string(::getpid());
  return {{"host", host},
          {"boot", first_line("/proc/sys/kernel/random/boot_id")},
          {"namespace", std::filesystem::read_symlink("/proc/self/ns/pid", error).string()},
          {"pid", pid},
          {"started", start_time(pid)}};
}

ProcessState state_of(const ProcessIdentity& process) {
  const ProcessIdentity self = this_process();
  for (const char* key : {"host", "boot", "namespace"})
    if (fact(process, key).empty() || fact(process, key) != fact(self, key)) return ProcessState::kElsewhere;
  const std::string pid = fact(process, "pid"), started = fact(process, "started");
  if (pid.empty() || started.empty()) return ProcessState::kElsewhere;
  if (is_hidden(pid)) return ProcessState::kElsewhere;
  return start_time(pid) == started ? ProcessState::kRuns : ProcessState::kGone;
}

std::string to_text(const ProcessIdentity& process) {
  std::string text;
  for (const auto& [key, value] : process) text += key + " " + value + "\n";
  return text;
}

ProcessIdentity parse_process(const std::string& text) {
  ProcessIdentity process;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) process[line.substr(0, space)] = in_one_line(line.substr(space + 1));
  }
  return process;
}

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string describe(const ProcessIdentity& process) {
  const auto known = [](std::string text) { return text.empty() ? "?" : text; };
  return fmt::format("process {} on {}", known(fact(process, "pid")), known(fact(process, "host")));
}

}  // namespace ripstop
