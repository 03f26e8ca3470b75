// The file system calls of ripstop as virtual functions, so that a test can make any call fail. Most code
// calls them through file.h, whole_file.h and directory.h.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

/// System calls as POSIX defines them: -1 means failure, and errno has the reason. Has no state, so several
/// threads may share an object.
class Io {
 public:
  struct Entry {
    std::string name;
    bool is_directory = false;  ///< a link to a directory does not count
    bool is_link = false;
  };
  struct Status {
    bool is_file = false;  ///< a regular file
    bool is_directory = false;
    int64_t bytes = 0;
    /// Bytes on the disk, without holes; 0 if unknown.
    int64_t allocated_bytes = 0;
  };

  virtual ~Io() = default;
  /// `flags` as in open(2), with O_CLOEXEC added. New files get mode 0666 less the umask.
  virtual int open(const std::filesystem::path& path, int flags) {
    return static_cast<int>(TEMP_FAILURE_RETRY(::open(path.c_str(), flags | O_CLOEXEC, 0666)));
  }
  virtual int close(int file) { return ::close(file); }
  virtual ssize_t read(int file, void* bytes, size_t count) { return ::read(file, bytes, count); }
  virtual ssize_t pread(int file, void* bytes, size_t count, int64_t offset) {
    return ::pread(file, bytes, count, offset);
  }
  virtual ssize_t write(int file, const void* bytes, size_t count) { return ::write(file, bytes, count); }
  virtual ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) {
    return ::pwrite(file, bytes, count, offset);
  }
  virtual int truncate(int file, int64_t bytes) { return ::ftruncate(file, bytes); }
  virtual int fsync(int file) { return ::fsync(file); }
  virtual int status(int file, Status& status);
  /// Starts the transfer of these bytes to the device. A hint: wait_written() or fsync() reports a failure.
  virtual void start_writing(int file, int64_t offset, int64_t bytes);
  /// Waits until these bytes have gone from the page cache to the device. Unlike fsync, does not make them
  /// durable: the device may have a cache, and metadata may be missing. If the file system has no such call,
  /// succeeds without waiting.
  virtual int wait_written(int file, int64_t offset, int64_t bytes);
  /// Drops these bytes (`bytes` 0: to the end) from the page cache, so that the next read asks the device.
  /// Bytes not yet on the device stay. A hint, so it reports no failure.
  virtual void forget(int file, int64_t offset, int64_t bytes);
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) {
    return ::rename(from.c_str(), to.c_str());
  }
  virtual int unlink(const std::filesystem::path& path) { return ::unlink(path.c_str()); }
  virtual int mkdir(const std::filesystem::path& path) { return ::mkdir(path.c_str(), 0777); }
  virtual int rmdir(const std::filesystem::path& path) { return ::rmdir(path.c_str()); }
  /// Appends the entries in any order, without "." and "..". If `directory` is a link, follows it.
  virtual int list(const std::filesystem::path& directory, std::vector<Entry>& entries);
  /// Does not follow a link: for a link, is_file and is_directory are false.
  virtual int status(const std::filesystem::path& path, Status& status);
  /// Free bytes of the file system for users without privileges, from statvfs(3).
  virtual int free_bytes(const std::filesystem::path& path, int64_t& bytes);
};

Io& posix_io();  ///< the Io that calls the operating system

/// A failed system call, which need not mean that a file is damaged.
class IoError : public Error {
 public:
  IoError(ExitCode code, const std::string& what, const std::string& hint, int number)
      : Error(code, what, hint), number_(number) {}
  /// Whether the call failed because a file or directory does not exist.
  bool is_absence() const { return number_ == ENOENT || number_ == ENOTDIR; }

 private:
  int number_;  ///< errno
};

/// Throws IoError(`code`) with the message "PATH: cannot WHAT: REASON" for the errno value `error`, and a
/// hint if the user can mend the error.
[[noreturn]] void fail_storage(const std::filesystem::path& path, std::string_view what, int error,
                               ExitCode code = ExitCode::kStorage);

}  // namespace ripstop
