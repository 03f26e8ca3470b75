// Io: the file system calls of ripstop, one virtual function each, so that a test can make any call fail.
// file.h, whole_file.h and directory.h wrap them for other code.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

/// The calls as POSIX defines them: a result of -1 means failure, and errno has the reason. Has no state.
/// Several threads may call the same object. A test derives from it and overrides calls.
class Io {
 public:
  struct Entry {
    std::string name;
    bool is_directory = false;  ///< a link to a directory is not one
    bool is_link = false;       ///< a symbolic link
  };
  struct Status {
    bool is_file = false;  ///< a regular file
    bool is_directory = false;
    int64_t bytes = 0;
    int64_t allocated_bytes = 0;  ///< on the disk: fewer than `bytes` if the file has holes; 0 if unknown
  };

  virtual ~Io() = default;
  /// New files get mode 0666 less the umask. `flags` as for open(2); O_CLOEXEC is added.
  virtual int open(const std::filesystem::path& path, int flags) {
    return ::open(path.c_str(), flags | O_CLOEXEC, 0666);
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
  /// Starts to write these bytes of the page cache to the device, and does not wait. A hint: never fails.
  /// fsync reports an error of the device.
  virtual void start_writing(int file, int64_t offset, int64_t bytes);
  /// Waits until these bytes have gone from the page cache to the device. Unlike fsync, does not make them
  /// durable: the device may have a cache, and the file's metadata may not be written yet. Succeeds without
  /// waiting on a file system that cannot tell.
  virtual int wait_written(int file, int64_t offset, int64_t bytes);
  /// Drops these bytes of a file (`bytes` 0: to its end) from the page cache, except those that the device
  /// does not have yet, so that the next read asks the device. A hint: never fails.
  virtual void forget(int file, int64_t offset, int64_t bytes);
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) {
    return ::rename(from.c_str(), to.c_str());
  }
  virtual int unlink(const std::filesystem::path& path) { return ::unlink(path.c_str()); }
  virtual int mkdir(const std::filesystem::path& path) { return ::mkdir(path.c_str(), 0777); }
  virtual int rmdir(const std::filesystem::path& path) { return ::rmdir(path.c_str()); }
  /// Appends the entries of `directory` in any order, without "." and "..". Follows a link given as
  /// `directory`.
  virtual int list(const std::filesystem::path& directory, std::vector<Entry>& entries);
  /// Does not follow a link: the status of a link has both flags false.
  virtual int status(const std::filesystem::path& path, Status& status);
  /// Bytes that this user may still write on the file system of `path`, from statvfs(3).
  virtual int free_bytes(const std::filesystem::path& path, int64_t& bytes);
};
using PosixIo = Io;  ///< the name for an Io that calls the system

/// The Io of code whose tests inject no faults.
Io& posix_io();

/// A call of the system failed, which by itself does not mean that a file is damaged.
class IoError : public Error {
 public:
  IoError(ExitCode code, const std::string& what, const std::string& hint, int number)
      : Error(code, what, hint), number_(number) {}
  /// Whether the reason is that a file or directory does not exist.
  bool is_absence() const { return number_ == ENOENT || number_ == ENOTDIR; }

 private:
  int number_;  ///< errno
};

/// Throws IoError(`code`): "PATH: cannot WHAT: reason". The reason is the system's text for the errno value
/// `error`. Adds a hint if the error has an obvious one.
[[noreturn]] void fail_storage(const std::filesystem::path& path, std::string_view what, int error,
                               ExitCode code = ExitCode::kStorage);

}  // namespace ripstop
