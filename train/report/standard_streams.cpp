#include "train/report/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>

#include "model/core/error.h"

namespace ripstop {

void secure_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // Lower numbers are taken, so the new file gets the stream's number. O_RDONLY makes writes to a closed
    // standard output fail, so that require_output() sees that the result was lost.
    if (::fcntl(stream, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR));
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

size_t write_patiently(int descriptor, std::string_view text, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  size_t written = 0;
  errno = 0;
  while (written < text.size()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
    const int found = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (found < 0 && errno == EINTR) continue;
    if (found == 0) errno = EAGAIN;
    if (found <= 0) break;
    // A pipe that is ready has room for PIPE_BUF bytes. Writing more could wait for the reader.
    const ssize_t now =
        ::write(descriptor, text.data() + written, std::min<size_t>(text.size() - written, PIPE_BUF));
    if (now < 0 && errno != EINTR && errno != EAGAIN) break;
    written += now < 0 ? 0 : static_cast<size_t>(now);
    errno = 0;
  }
  return written;
}

void print_text(std::FILE* stream, const std::string& text) {
  std::fflush(stream);
  write_patiently(fileno(stream), text, /*seconds=*/1);
}

void require_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLHUP)) != 0) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  throw Error(ExitCode::kStorage, "cannot write to standard output", "is it closed, or the disk full?");
}

}  // namespace ripstop
