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
#include <exception>
#include <utility>

#include "data/files/file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// Messages of the child: the kind, and then the text. Of an error: the code, what() and hint().
constexpr char kText = 'T', kError = 'E';

/// The body of the child. Never returns: destructors of the parent's objects would remove its files.
[[noreturn]] void be_child(FunctionRef<std::string()> work, int pipe) {
  std::string message;
  try {
    message = kText + work();
  } catch (const Error& error) {
    message = kError + fmt::format("{}", static_cast<int>(error.code())) + '\0' + error.what() + '\0' +
              error.hint();
  } catch (const std::exception& error) {
    message = kError + fmt::format("{}", static_cast<int>(ExitCode::kBug)) + '\0' + error.what() + '\0';
  }
  for (size_t at = 0; at < message.size();) {
    const ssize_t done = ::write(pipe, message.data() + at, message.size() - at);
    if (done < 0 && errno != EINTR) ::_exit(1);
    at += static_cast<size_t>(done < 0 ? 0 : done);
  }
  ::_exit(0);
}

/// A running child. Its end is waited for in any case: a child that nobody waits for stays in the table.
class Child {
 public:
  explicit Child(FunctionRef<std::string()> work) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) fail(ExitCode::kResources, "cannot make a pipe: {}", std::strerror(errno));
    read_end_ = Descriptor(posix_io(), ends[0]);
    Descriptor write_end(posix_io(), ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail(ExitCode::kResources, "cannot start a process: {}", std::strerror(errno));
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the line above.
    if (::getppid() != parent) ::_exit(1);
    be_child(work, write_end.release());
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Appends what the child has written; false at its end. Returns after a tenth of a second if there is
  /// nothing.
  bool read(std::string& message) {
    struct pollfd ready {
      read_end_.value(), POLLIN, 0
    };
    if (::poll(&ready, 1, 100) <= 0) return true;
    std::array<char, 1 << 16> bytes;
    const ssize_t got = ::read(read_end_.value(), bytes.data(), bytes.size());
    if (got < 0) return errno == EINTR;
    message.append(bytes.data(), static_cast<size_t>(got));
    return got > 0;
  }
  /// Returns the status of waitpid(2).
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  Descriptor read_end_;
  pid_t pid_ = 0;
};

}  // namespace

std::optional<std::string> run_in_child(FunctionRef<std::string()> work, FunctionRef<bool()> stop_requested) {
  Child child(work);
  std::string message;
  bool stopped = false;
  while (!(stopped = stop_requested()) && child.read(message)) {
  }
  if (stopped) return std::nullopt;
  const int status = child.wait();
  // Ctrl-C reaches the child, too.
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

namespace {

/// "NAME=VALUE" of this process's environment, with `changes`.
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

/// Starts `words` with its standard output in `pipe`, and without input and errors. 0 if that fails.
pid_t start_program(std::vector<std::string> words, std::vector<std::string> environment, int pipe) {
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0) return 0;
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  if (::posix_spawnattr_init(&attributes) != 0) {
    ::posix_spawn_file_actions_destroy(&actions);
    return 0;
  }
  // The program may need signals that this thread has blocked: Ctrl-C ends it, too.
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, words.front().c_str(), &actions, &attributes,
                                   pointers_to(words).data(), pointers_to(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : 0;
}

/// Reads from `pipe` to its end; false if that does not come until `end`.
bool read_until(int pipe, std::chrono::steady_clock::time_point end, std::string& output) {
  constexpr size_t kMostBytes = size_t{1} << 16;
  std::array<char, 4096> bytes;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    struct pollfd ready {
      pipe, POLLIN, 0
    };
    if (left <= 0) return false;
    const int found = ::poll(&ready, 1, static_cast<int>(left));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return false;
    const ssize_t got = ::read(pipe, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    output.append(bytes.data(), std::min(static_cast<size_t>(got), kMostBytes - output.size()));
  }
}

}  // namespace

std::optional<std::string> output_of_program(
    const std::vector<std::string>& words, double seconds,
    const std::vector<std::pair<std::string, std::string>>& environment) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const Descriptor read_end(posix_io(), ends[0]);
  pid_t child = 0;
  {
    const Descriptor write_end(posix_io(), ends[1]);
    child = start_program(words, changed_environment(environment), write_end.value());
  }
  if (child == 0) return std::nullopt;
  const auto end =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  std::string output;
  const bool has_ended = read_until(read_end.value(), end, output);
  int status = 0;
  pid_t waited = 0;
  // One that has closed its output may still run.
  while (has_ended && (waited = ::waitpid(child, &status, WNOHANG)) == 0 &&
         std::chrono::steady_clock::now() < end)
    ::usleep(1000);
  if (waited == 0) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (!has_ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return output;
}

}  // namespace ripstop
