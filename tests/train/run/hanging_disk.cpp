// A disk that does not answer, for tests of whole programs: to be preloaded (LD_PRELOAD). A write to a file
// whose name is that of an entry of the directory HANGING_DISK returns when that entry is gone.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace {

// The entry for an open file; empty without HANGING_DISK.
std::string entry_of(int file) {
  const char* directory = std::getenv("HANGING_DISK");
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (directory == nullptr || ::readlink(link.c_str(), path.data(), path.size() - 1) <= 0) return "";
  const std::string written = path.data();
  return directory + ("/" + written.substr(written.rfind('/') + 1));
}

ssize_t write_when_it_answers(int file, const void* bytes, size_t count, off_t offset) {
  const std::string entry = entry_of(file);
  while (!entry.empty() && ::access(entry.c_str(), F_OK) == 0) ::usleep(10'000);
  return ::syscall(SYS_pwrite64, file, bytes, count, offset);
}

}  // namespace

extern "C" ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return write_when_it_answers(file, bytes, count, offset);
}
extern "C" ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return write_when_it_answers(file, bytes, count, offset);
}
