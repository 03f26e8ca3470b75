#include "train/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "model/error.h"

namespace ripstop {
namespace {

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor, text.data(), text.size());
    if (put < 0 && errno != EINTR) return false;
    if (put > 0) text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

// Makes the name of a new file last. Some file systems refuse to sync directories; then there is nothing to
// do.
void sync_names(const std::filesystem::path& directory) {
  const int descriptor =
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

void write_whole_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path beside = path.string() + ".partial";
  const int descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(ExitCode::kStorage, "cannot write {}: {}", path.string(), std::strerror(errno));
  bool done = write_all(descriptor, text) && ::fsync(descriptor) == 0;
  int error = errno;
  done = ::close(descriptor) == 0 && done;
  if (done && std::rename(beside.c_str(), path.c_str()) != 0) {
    error = errno;
    done = false;
  }
  if (!done) {
    ::unlink(beside.c_str());
    fail(ExitCode::kStorage, "cannot write {}: {}", path.string(), std::strerror(error));
  }
  sync_names(path.parent_path());
}

}  // namespace ripstop
