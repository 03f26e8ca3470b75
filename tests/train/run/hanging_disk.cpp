// A disk that does not answer, for tests of whole programs, by LD_PRELOAD. While the directory HANGING_DISK
// has an empty entry NAME, writes to files called NAME hang. If the entry has lines, only a write of one of
// these lines hangs, after it is done, and SIGUSR1 ends that, too: so a test can hold a run at a certain step
// until it is asked to stop.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace {

// The path of the entry for an open file; empty without HANGING_DISK.
std::string entry_of(int file) {
  const char* directory = std::getenv("HANGING_DISK");
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (directory == nullptr || ::readlink(link.c_str(), path.data(), path.size() - 1) <= 0) return "";
  const std::string written = path.data();
  return directory + ("/" + written.substr(written.rfind('/') + 1));
}

bool is_there(const std::string& entry, bool empty) {
  struct stat found {};
  return !entry.empty() && ::stat(entry.c_str(), &found) == 0 && (found.st_size == 0) == empty;
}

void (*handler_of_program)(int) = nullptr;
volatile std::sig_atomic_t stop_requested = 0;

void note_request(int signal) {
  handler_of_program(signal);
  stop_requested = 1;
}

template <class Write>
ssize_t write_when_it_answers(int file, const void* bytes, size_t count, const Write& write) {
  const std::string entry = entry_of(file);
  while (is_there(entry, true)) ::usleep(10'000);
  const ssize_t written = write();
  const std::string_view text(static_cast<const char*>(bytes), count);
  std::ifstream lines(entry);
  for (std::string line; std::getline(lines, line);)
    while (text.find(line) != text.npos && is_there(entry, false) && stop_requested == 0) ::usleep(10'000);
  return written;
}

}  // namespace

extern "C" ssize_t write(int file, const void* bytes, size_t count) {
  return write_when_it_answers(file, bytes, count, [&] { return ::syscall(SYS_write, file, bytes, count); });
}
extern "C" ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return write_when_it_answers(file, bytes, count,
                               [&] { return ::syscall(SYS_pwrite64, file, bytes, count, offset); });
}
extern "C" ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return pwrite(file, bytes, count, offset);
}
extern "C" int sigaction(int signal, const struct sigaction* action, struct sigaction* before) noexcept {
  static const auto next = reinterpret_cast<decltype(&sigaction)>(::dlsym(RTLD_NEXT, "sigaction"));
  struct sigaction noting {};
  if (action != nullptr) noting = *action;
  const bool is_handler = noting.sa_handler != SIG_DFL && noting.sa_handler != SIG_IGN;
  if (signal == SIGUSR1 && is_handler) {
    handler_of_program = noting.sa_handler;
    noting.sa_handler = note_request;
  }
  const int result = next(signal, action != nullptr ? &noting : nullptr, before);
  if (before != nullptr && before->sa_handler == note_request) before->sa_handler = handler_of_program;
  return result;
}
