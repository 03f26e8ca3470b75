#include "data/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "data/files/file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// First character of the child's message. The result of `work` follows kText; code, what() and hint() of an
/// Error follow kError.
constexpr char kText = 'T', kError = 'E';

/// Writes the result of `work`, or its error, to `pipe`. Never returns, because destructors of the parent's
/// objects would remove the parent's files.
[[noreturn]] void be_child(FunctionRef<std::string()> work, int pipe) {
  std::string message;
  try {
    message = kText + work();
  } catch (...) {
    const Error error = current_error();
    message = kError + fmt::format("{}", static_cast<int>(error.code())) + '\0' + error.what() + '\0' +
              error.hint();
  }
  for (size_t at = 0; at < message.size();) {
    const ssize_t done = ::write(pipe, message.data() + at, message.size() - at);
    if (done < 0 && errno != EINTR) ::_exit(1);
    at += static_cast<size_t>(done < 0 ? 0 : done);
  }
  ::_exit(0);
}

/// A child process that writes to a pipe. The destructor kills it if it may still run, and waits for it,
/// because an ended child stays in the system's table until then.
class Child {
 public:
  Child(pid_t pid, Descriptor read_end) : pid_(pid), read_end_(std::move(read_end)) {}
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits up to 0.1 s for output and appends it to `output`. Returns false at its end or if reading fails.
  bool read(std::string& output) const {
    struct pollfd ready {
      read_end_.value(), POLLIN, 0
    };
    if (::poll(&ready, 1, 100) <= 0) return true;
    std::array<char, 1 << 16> bytes;
    const ssize_t got = ::read(read_end_.value(), bytes.data(), bytes.size());
    if (got < 0) return errno == EINTR;
    output.append(bytes.data(), static_cast<size_t>(got));
    return got > 0;
  }
  /// Returns the status as in waitpid(2). With WNOHANG, returns nullopt at once if the process still runs.
  std::optional<int> wait(int options = 0) {
    int status = -1;  // if waitpid fails: neither an exit nor a signal
    pid_t ended = 0;
    while ((ended = ::waitpid(pid_, &status, options)) < 0 && errno == EINTR) {
    }
    if (ended == 0) return std::nullopt;
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
  Descriptor read_end_;
};

/// The environment with `changes` applied, as "NAME=VALUE".
std::vector<std::string> changed_environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string entry = *each;
    const auto names_it = [&](const auto& change) { return entry.starts_with(change.first + "="); };
    if (std::none_of(changes.begin(), changes.end(), names_it)) all.push_back(entry);
  }
  for (const auto& [name, value] : changes) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Starts a program whose output goes to `pipe`; input and error are /dev/null. Returns its id; 0 on failure.
pid_t start_program(std::vector<std::string> words, std::vector<std::string> environment, int pipe) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&actions) != 0 || ::posix_spawnattr_init(&attributes) != 0) return 0;
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // Ctrl-C must end the program even if this thread blocks SIGINT.
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  // This process may ignore SIGPIPE. The program must not: SIGPIPE ends it once nobody reads its output.
  sigset_t usual = none;
  sigaddset(&usual, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &usual);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, words.front().c_str(), &actions, &attributes,
                                   pointers_to(words).data(), pointers_to(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : 0;
}

}  // namespace

std::optional<std::string> run_in_child(FunctionRef<std::string()> work, FunctionRef<bool()> stop_requested) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    fail(ExitCode::kResources, "cannot make a pipe: {}", std::strerror(errno));
  Descriptor read_end(posix_io(), ends[0]), write_end(posix_io(), ends[1]);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) fail(ExitCode::kResources, "cannot start a process: {}", std::strerror(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before prctl took effect.
    if (::getppid() != parent) ::_exit(1);
    be_child(work, write_end.value());
  }
  write_end = Descriptor();
  Child child(pid, std::move(read_end));
  std::string message;
  while (child.read(message))
    if (stop_requested()) return std::nullopt;
  const int status = child.wait().value();
  // The signal that requests the stop may have ended the child, too.
  if (stop_requested()) return std::nullopt;
  if (WIFSIGNALED(status)) {
    throw Error(ExitCode::kResources,
                fmt::format("a child process was killed by signal {}", WTERMSIG(status)),
                "the system does that if memory runs out");
  }
  RIPSTOP_CHECK(WEXITSTATUS(status) == 0 && !message.empty(), "a child process ended with {}", status);
  if (message.front() == kText) return message.substr(1);
  const size_t what = message.find('\0') + 1, hint = message.find('\0', what) + 1;
  throw Error(static_cast<ExitCode>(std::stoi(message.substr(1))), message.substr(what, hint - 1 - what),
              message.substr(hint));
}

std::optional<std::string> output_of_program(
    const std::vector<std::string>& words, double seconds,
    const std::vector<std::pair<std::string, std::string>>& environment) {
  constexpr size_t kMostBytes = size_t{1} << 16;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  Descriptor read_end(posix_io(), ends[0]), write_end(posix_io(), ends[1]);
  const auto start = std::chrono::steady_clock::now();
  const auto is_late = [&] {
    return std::chrono::steady_clock::now() - start >= std::chrono::duration<double>(seconds);
  };
  const pid_t pid = start_program(words, changed_environment(environment), write_end.value());
  if (pid == 0) return std::nullopt;
  write_end = Descriptor();
  Child child(pid, std::move(read_end));
  std::string output;
  while (child.read(output)) {
    if (is_late()) return std::nullopt;
    output.resize(std::min(output.size(), kMostBytes));
  }
  // A program may close its output and still run.
  std::optional<int> status;
  while (!(status = child.wait(WNOHANG))) {
    if (is_late()) return std::nullopt;
    ::usleep(1000);
  }
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) return std::nullopt;
  return output;
}

}  // namespace ripstop
