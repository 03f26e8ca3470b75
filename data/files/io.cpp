#include "data/files/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <system_error>

namespace ripstop {
namespace {

// Hints for the errors that a user can mend. For others the system's own text has to do.
std::string hint_of(int error) {
  switch (error) {
    case ENOSPC:
      return "the disk is full";
    case EDQUOT:
      return "the disk quota is used up";
    case EROFS:
      return "the file system is mounted read-only";
    case EACCES:
    case EPERM:
      return "check the owner and the permissions";
    default:
      return "";
  }
}

Io::Status status_of(const struct stat& facts) {
  constexpr int64_t kUnit = 512;  // of st_blocks, whatever the blocks of the file system are
  return {S_ISREG(facts.st_mode), S_ISDIR(facts.st_mode), static_cast<int64_t>(facts.st_size),
          static_cast<int64_t>(facts.st_blocks) * kUnit};
}

}  // namespace

int PosixIo::open(const std::filesystem::path& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC, 0666);
}

int PosixIo::close(int file) {
  return ::close(file);
}

ssize_t PosixIo::read(int file, void* bytes, size_t count) {
  return ::read(file, bytes, count);
}

ssize_t PosixIo::pread(int file, void* bytes, size_t count, int64_t offset) {
  return ::pread(file, bytes, count, offset);
}

ssize_t PosixIo::write(int file, const void* bytes, size_t count) {
  return ::write(file, bytes, count);
}

ssize_t PosixIo::pwrite(int file, const void* bytes, size_t count, int64_t offset) {
  return ::pwrite(file, bytes, count, offset);
}

int PosixIo::truncate(int file, int64_t bytes) {
  return ::ftruncate(file, bytes);
}

int PosixIo::fsync(int file) {
  return ::fsync(file);
}

int PosixIo::status(int file, Status& status) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0) return -1;
  status = status_of(facts);
  return 0;
}

void PosixIo::start_writing(int file, int64_t offset, int64_t bytes) {
  (void)::sync_file_range(file, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

int PosixIo::wait_written(int file, int64_t offset, int64_t bytes) {
  constexpr unsigned kAll = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(file, offset, bytes, kAll) == 0) return 0;
  // A file system without it: fsync waits for everything in the end.
  return errno == EINVAL || errno == ENOSYS || errno == ESPIPE ? 0 : -1;
}

void PosixIo::forget(int file, int64_t offset, int64_t bytes) {
  // Only advice: if it fails, the pages stay in memory a while longer.
  (void)::posix_fadvise(file, offset, bytes, POSIX_FADV_DONTNEED);
}

int PosixIo::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::rename(from.c_str(), to.c_str());
}

int PosixIo::unlink(const std::filesystem::path& path) {
  return ::unlink(path.c_str());
}

int PosixIo::mkdir(const std::filesystem::path& path) {
  return ::mkdir(path.c_str(), 0777);
}

int PosixIo::rmdir(const std::filesystem::path& path) {
  return ::rmdir(path.c_str());
}

int PosixIo::list(const std::filesystem::path& directory, std::vector<Entry>& entries) {
  DIR* stream = ::opendir(directory.c_str());
  if (stream == nullptr) return -1;
  // readdir returns null both at the end and on an error. Only errno tells them apart, so clear it before
  // each call.
  errno = 0;
  while (const dirent* found = ::readdir(stream)) {
    const std::string name = found->d_name;
    struct stat facts {};
    // d_type would save this call, but some network file systems leave it unknown.
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

int PosixIo::status(const std::filesystem::path& path, Status& status) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return -1;
  status = status_of(facts);
  return 0;
}

int PosixIo::free_bytes(const std::filesystem::path& path, int64_t& bytes) {
  struct statvfs facts {};
  if (::statvfs(path.c_str(), &facts) != 0) return -1;
  bytes = static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
  return 0;
}

Io& posix_io() {
  static PosixIo io;
  return io;
}

void fail_storage(const std::filesystem::path& path, std::string_view what, int error, ExitCode code) {
  throw IoError(code,
                fmt::format("{}: cannot {}: {}", path.string(), what, std::generic_category().message(error)),
                hint_of(error), error);
}

}  // namespace ripstop
