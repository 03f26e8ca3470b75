#include "data/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "model/core/error.h"

namespace ripstop {
namespace {

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

}  // namespace

int PosixIo::open(const std::filesystem::path& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC, 0666);
}

int PosixIo::close(int file) {
  return ::close(file);
}

ssize_t PosixIo::pwrite(int file, const void* bytes, size_t count, int64_t offset) {
  return ::pwrite(file, bytes, count, offset);
}

ssize_t PosixIo::pread(int file, void* bytes, size_t count, int64_t offset) {
  return ::pread(file, bytes, count, offset);
}

int PosixIo::fsync(int file) {
  return ::fsync(file);
}

void PosixIo::forget(int file) {
  (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
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
  errno = 0;
  while (const dirent* found = ::readdir(stream)) {
    const std::string name = found->d_name;
    struct stat facts {};
    const bool is_directory =
        ::fstatat(::dirfd(stream), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(facts.st_mode);
    if (name != "." && name != "..") entries.push_back({name, is_directory});
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
  status = {S_ISREG(facts.st_mode), S_ISDIR(facts.st_mode), static_cast<int64_t>(facts.st_size)};
  return 0;
}

int PosixIo::free_bytes(const std::filesystem::path& path, int64_t& bytes) {
  struct statvfs facts {};
  if (::statvfs(path.c_str(), &facts) != 0) return -1;
  bytes = static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
  return 0;
}

void fail_storage(const std::filesystem::path& path, std::string_view what, int error) {
  throw IoError(fmt::format("{}: cannot {}: {}", path.string(), what, std::generic_category().message(error)),
                hint_of(error), error);
}

File File::create(Io& io, const std::filesystem::path& path) {
  const int file = io.open(path, O_CREAT | O_EXCL | O_WRONLY);
  if (file < 0) fail_storage(path, "create it", errno);
  return {io, path, file};
}

File File::open(Io& io, const std::filesystem::path& path) {
  const int file = io.open(path, O_RDONLY | O_NOFOLLOW);
  if (file < 0) fail_storage(path, "open it", errno);
  return {io, path, file};
}

File::File(File&& other) noexcept
    : io_(other.io_), path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

File::~File() {
  if (file_ >= 0) io_->close(file_);
}

void File::write(const void* bytes, int64_t count, int64_t offset) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = io_->pwrite(file_, from, static_cast<size_t>(count), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_storage(path_, "write", done < 0 ? errno : ENOSPC);
    from += done, count -= done, offset += done;
  }
}

void File::read(void* bytes, int64_t count, int64_t offset) const {
  char* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t done = io_->pread(file_, to, static_cast<size_t>(count), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_storage(path_, "read", errno);
    if (done == 0)
      fail(ExitCode::kStorage, "{}: ends at byte {}, {} more were expected", path_.string(), offset, count);
    to += done, count -= done, offset += done;
  }
}

void File::sync() {
  while (io_->fsync(file_) != 0)
    if (errno != EINTR) fail_storage(path_, "sync", errno);
}

void File::close() {
  // On Linux the descriptor is gone even where close fails, EINTR included: never twice.
  if (io_->close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail_storage(path_, "close", errno);
}

void write_file(Io& io, const std::filesystem::path& path, std::string_view bytes) {
  File file = File::create(io, path);
  file.write(bytes.data(), static_cast<int64_t>(bytes.size()), 0);
  file.sync();
  file.close();
}

std::string read_file(Io& io, const std::filesystem::path& path, int64_t most_bytes) {
  Io::Status status;
  if (io.status(path, status) != 0) fail_storage(path, "find it", errno);
  if (!status.is_file) fail(ExitCode::kStorage, "{}: is not a plain file", path.string());
  if (status.bytes > most_bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, at most {} were expected", path.string(), status.bytes,
         most_bytes);
  std::string bytes(static_cast<size_t>(status.bytes), '\0');
  const File file = File::open(io, path);
  file.read(bytes.data(), status.bytes, 0);
  return bytes;
}

void sync_directory(Io& io, const std::filesystem::path& directory) {
  const int file = io.open(directory, O_RDONLY | O_DIRECTORY);
  if (file < 0) fail_storage(directory, "open it", errno);
  int status = 0;
  do {
    status = io.fsync(file);
  } while (status != 0 && errno == EINTR);
  const int error = errno;
  io.close(file);
  // Some file systems have no fsync of directories and say EINVAL; nothing more can be asked of them.
  if (status != 0 && error != EINVAL) fail_storage(directory, "sync", error);
}

void rename_path(Io& io, const std::filesystem::path& from, const std::filesystem::path& to) {
  if (io.rename(from, to) != 0)
    fail_storage(from, fmt::format("rename to {}", to.filename().string()), errno);
}

std::vector<Io::Entry> list_directory(Io& io, const std::filesystem::path& directory) {
  std::vector<Io::Entry> entries;
  if (io.list(directory, entries) != 0 && errno != ENOENT) fail_storage(directory, "list", errno);
  std::sort(entries.begin(), entries.end(),
            [](const Io::Entry& a, const Io::Entry& b) { return a.name < b.name; });
  return entries;
}

bool remove_tree(Io& io, const std::filesystem::path& path) {
  std::vector<Io::Entry> entries;
  if (io.list(path, entries) != 0) return errno == ENOENT;
  bool empty = true;
  for (const Io::Entry& entry : entries)
    empty &= entry.is_directory ? remove_tree(io, path / entry.name) : io.unlink(path / entry.name) == 0;
  return empty && io.rmdir(path) == 0;
}

}  // namespace ripstop
