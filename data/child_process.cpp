#include "data/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "data/file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// What the child writes: the kind, and then the text. Of an error: the code, what() and hint().
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

}  // namespace ripstop
