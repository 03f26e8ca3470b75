// A pseudo-terminal for tests, which read back the text that is printed to its stream.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace ripstop {

class PseudoTerminal {
 public:
  /// Some containers have no pseudo-terminals: tests skip there.
  static bool is_possible() {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master >= 0) close(master);
    return master >= 0;
  }
  static constexpr const char* kAbsent = "no pseudo-terminals here: /dev/ptmx cannot be opened";

  explicit PseudoTerminal(unsigned short columns) : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (!is_possible()) {
      stream_ = std::fopen("/dev/null", "r+");
      return;
    }
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0)
      throw std::runtime_error("no pseudo-terminal");
    stream_ = std::fopen(ptsname(master_), "r+");
    if (stream_ == nullptr) throw std::runtime_error("the pseudo-terminal cannot be opened");
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    ioctl(master_, TIOCSWINSZ, &size);
    // Turns off output processing, so that "\n" stays "\n".
    termios modes{};
    tcgetattr(fileno(stream_), &modes);
    modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    tcsetattr(fileno(stream_), TCSANOW, &modes);
  }
  ~PseudoTerminal() {
    std::fclose(stream_);
    close(master_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  std::FILE* stream() const { return stream_; }

  /// The text printed since the last call.
  std::string read_printed() const {
    std::fflush(stream_);
    std::string text;
    pollfd ready{master_, POLLIN, 0};
    char part[4096];
    while (poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0) {
      const ssize_t count = read(master_, part, sizeof part);
      if (count <= 0) break;
      text.append(part, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int master_;
  std::FILE* stream_ = nullptr;
};

/// Sets an environment variable, or removes it if the value is null, until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    set(value);
  }
  ~ScopedVariable() { set(had_ ? before_.c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr)
      setenv(name_, value, 1);
    else
      unsetenv(name_);
  }
  const char* name_;
  bool had_ = false;
  std::string before_;
};

}  // namespace ripstop
