// A disk that does not answer, for tests of whole programs, by LD_PRELOAD. Entries of the directory
// HANGING_DISK say what hangs while they are there:
// - NAME, empty: writes to files called NAME;
// - NAME with lines: the main thread, soon after one of these lines was written to a file called NAME.
//   SIGUSR1 ends that, too: so a test can hold a run at a certain step until it is asked to stop;
// - everything: every call for a file whose path begins with the entry's first line. If it has a second line,
//   only from the write of that line to metrics.jsonl on.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

namespace {

constexpr useconds_t kLook = 10'000;

void (*handler_of_program)(int) = nullptr;
volatile std::sig_atomic_t stop_requested = 0;
std::atomic<bool> holds_main = false, line_is_due = false;
// The entry that holds the main thread. Written before holds_main.
std::array<char, 4096> holding_entry{};

void note_request(int signal) {
  handler_of_program(signal);
  stop_requested = 1;
}

bool exists(const std::string& path) {
  return ::syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

// The text of an entry, read by system calls, as the functions below replace those of the C library; "" if it
// is absent.
std::string read_entry(const std::string& path) {
  const long file = ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC);
  std::array<char, 4096> text{};
  const long bytes = file < 0 ? 0 : ::syscall(SYS_read, file, text.data(), text.size());
  if (file >= 0) ::syscall(SYS_close, file);
  return {text.data(), static_cast<size_t>(bytes < 0 ? 0 : bytes)};
}

// The value of HANGING_DISK; "" if it is not set. Read when the library is loaded: MPI sets variables while
// other threads write files.
const std::string& hanging_disk() {
  static const std::string value = [] {
    const char* const set = std::getenv("HANGING_DISK");
    return std::string(set == nullptr ? "" : set);
  }();
  return value;
}
[[gnu::constructor]] void read_when_loaded() {
  hanging_disk();
}

// The path of the entry called `name`; "" without HANGING_DISK.
std::string entry(const std::string& name) {
  return hanging_disk().empty() ? "" : hanging_disk() + "/" + name;
}

std::string path_of(int file) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return ::readlink(link.c_str(), path.data(), path.size() - 1) <= 0 ? "" : path.data();
}

void wait_for(const std::string& path) {
  const std::string everything = entry("everything");
  while (!everything.empty() && exists(everything)) {
    const std::string text = read_entry(everything);
    const std::string directory = text.substr(0, text.find('\n'));
    const bool has_line = text.find('\n') + 1 < text.size();
    if (directory.empty() || !path.starts_with(directory) || (has_line && !line_is_due)) return;
    ::usleep(kLook);
  }
}
void wait_for(int file) {
  if (!hanging_disk().empty()) wait_for(path_of(file));
}
void wait_for(const char* path) {
  if (!hanging_disk().empty()) wait_for(std::string(path));
}

// Calls visit(line) for each line of `text` from line `first` on.
template <class Visit>
void for_each_line(const std::string& text, size_t first, const Visit& visit) {
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    if (first > 0)
      --first;
    else if (end > begin)
      visit(text.substr(begin, end - begin));
  }
}

template <class Write>
ssize_t write_when_it_answers(int file, const void* bytes, size_t count, const Write& write) {
  const std::string path = hanging_disk().empty() ? "" : path_of(file);
  if (path.empty()) return write();
  const std::string name = path.substr(path.rfind('/') + 1), own = entry(name);
  const std::string_view text(static_cast<const char*>(bytes), count);
  if (name == "metrics.jsonl")
    for_each_line(read_entry(entry("everything")), 1, [&](const std::string& line) {
      if (text.find(line) != text.npos) line_is_due = true;
    });
  wait_for(path);
  while (exists(own) && read_entry(own).empty()) ::usleep(kLook);
  const ssize_t written = write();
  for_each_line(read_entry(own), 0, [&](const std::string& line) {
    if (text.find(line) == text.npos) return;
    own.copy(holding_entry.data(), holding_entry.size() - 1);
    holds_main = true;
  });
  return written;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list& list) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

}  // namespace

extern "C" {
ssize_t write(int file, const void* bytes, size_t count) {
  return write_when_it_answers(file, bytes, count, [&] { return ::syscall(SYS_write, file, bytes, count); });
}
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return write_when_it_answers(file, bytes, count,
                               [&] { return ::syscall(SYS_pwrite64, file, bytes, count, offset); });
}
ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return pwrite(file, bytes, count, offset);
}
ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  wait_for(file);
  return ::syscall(SYS_pread64, file, bytes, count, offset);
}
ssize_t pread64(int file, void* bytes, size_t count, off64_t offset) {
  return pread(file, bytes, count, offset);
}
int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  wait_for(path);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open(path, flags, mode);
}
int fsync(int file) {
  wait_for(file);
  return static_cast<int>(::syscall(SYS_fsync, file));
}
int ftruncate(int file, off_t bytes) noexcept {
  wait_for(file);
  return static_cast<int>(::syscall(SYS_ftruncate, file, bytes));
}
int fstat(int file, struct stat* status) noexcept {
  wait_for(file);
  static const auto call = next<int(int, struct stat*)>("fstat");
  return call(file, status);
}
int stat(const char* path, struct stat* status) noexcept {
  wait_for(path);
  static const auto call = next<int(const char*, struct stat*)>("stat");
  return call(path, status);
}
int lstat(const char* path, struct stat* status) noexcept {
  wait_for(path);
  static const auto call = next<int(const char*, struct stat*)>("lstat");
  return call(path, status);
}
int rename(const char* from, const char* to) noexcept {
  wait_for(from);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept {
  wait_for(path);
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int rmdir(const char* path) noexcept {
  wait_for(path);
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}
int mkdir(const char* path, mode_t mode) noexcept {
  wait_for(path);
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
DIR* opendir(const char* path) {
  wait_for(path);
  static const auto call = next<DIR*(const char*)>("opendir");
  return call(path);
}

// The main thread looks at a clock many times in a step, and stands still there.
int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto call = next<int(clockid_t, timespec*)>("clock_gettime");
  if (holds_main && ::syscall(SYS_gettid) == ::getpid()) {
    while (stop_requested == 0 && !read_entry(holding_entry.data()).empty()) ::usleep(kLook);
    holds_main = false;
  }
  return call(clock, time);
}

int sigaction(int signal, const struct sigaction* action, struct sigaction* before) noexcept {
  static const auto call = next<int(int, const struct sigaction*, struct sigaction*)>("sigaction");
  struct sigaction noting {};
  if (action != nullptr) noting = *action;
  const bool is_handler = noting.sa_handler != SIG_DFL && noting.sa_handler != SIG_IGN;
  if (signal == SIGUSR1 && is_handler) {
    handler_of_program = noting.sa_handler;
    noting.sa_handler = note_request;
  }
  const int result = call(signal, action != nullptr ? &noting : nullptr, before);
  if (before != nullptr && before->sa_handler == note_request) before->sa_handler = handler_of_program;
  return result;
}
}
