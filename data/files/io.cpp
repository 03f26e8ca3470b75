#include "data/files/io.h"

#include <dirent.h>
#include <sys/statvfs.h>

#include <system_error>

#include "data/files/directory.h"

namespace ripstop {
namespace {

// A hint for errors that a user can mend; "" for others.
const char* hint_of(int error) {
  if (error == ENOSPC) return "the disk is full";
  if (error == EDQUOT) return "the disk quota is used up";
  if (error == EROFS) return "the file system is mounted read-only";
  return error == EACCES || error == EPERM ? "check the owner and the permissions" : "";
}

Io::Status status_of(const struct stat& facts) {
  constexpr int64_t kUnit = 512;  // unit of st_blocks on Linux
  return {S_ISREG(facts.st_mode), S_ISDIR(facts.st_mode), static_cast<int64_t>(facts.st_size),
          static_cast<int64_t>(facts.st_blocks) * kUnit};
}

}  // namespace

int Io::status(int file, Status& status) {
  struct stat facts {};
  if (TEMP_FAILURE_RETRY(::fstat(file, &facts)) != 0) return -1;
  status = status_of(facts);
  return 0;
}

void Io::start_writing(int file, int64_t offset, int64_t bytes) {
  (void)::sync_file_range(file, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

int Io::wait_written(int file, int64_t offset, int64_t bytes) {
  constexpr unsigned kAll = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(file, offset, bytes, kAll) == 0) return 0;
  // No error if the file system lacks this call: the fsync at the end waits for all bytes.
  return errno == EINVAL || errno == ENOSYS || errno == ESPIPE ? 0 : -1;
}

void Io::forget(int file, int64_t offset, int64_t bytes) {
  (void)::posix_fadvise(file, offset, bytes, POSIX_FADV_DONTNEED);
}

int Io::list(const std::filesystem::path& directory, std::vector<Entry>& entries) {
  DIR* stream = nullptr;
  do stream = ::opendir(directory.c_str());
  while (stream == nullptr && errno == EINTR);
  if (stream == nullptr) return -1;
  // readdir returns null both at the end and on an error; only errno tells which.
  errno = 0;
  while (const dirent* found = ::readdir(stream)) {
    const std::string name = found->d_name;
    struct stat facts {};
    // Call fstatat, because some network file systems leave d_type unknown.
    const bool known = ::fstatat(::dirfd(stream), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
    if (name != "." && name != "..")
      entries.push_back({name, known && S_ISDIR(facts.st_mode), known && S_ISLNK(facts.st_mode)});
    errno = 0;
  }
  const int error = errno;
  ::closedir(stream);
  errno = error;
  return error == 0 ? 0 : -1;
}

int Io::status(const std::filesystem::path& path, Status& status) {
  struct stat facts {};
  if (TEMP_FAILURE_RETRY(::lstat(path.c_str(), &facts)) != 0) return -1;
  status = status_of(facts);
  return 0;
}

int Io::free_bytes(const std::filesystem::path& path, int64_t& bytes) {
  struct statvfs facts {};
  if (TEMP_FAILURE_RETRY(::statvfs(path.c_str(), &facts)) != 0) return -1;
  bytes = static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
  return 0;
}

Io& posix_io() {
  static Io io;
  return io;
}

void fail_storage(const std::filesystem::path& path, std::string_view what, int error, ExitCode code) {
  throw IoError(code,
                fmt::format("{}: cannot {}: {}", path.string(), what, std::generic_category().message(error)),
                error == ENOENT ? hint_for_link(path) : hint_of(error), error);
}

}  // namespace ripstop
