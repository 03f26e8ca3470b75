// Io: the file system calls of ripstop, one virtual function each, so that a test can make any call fail.
// file.h, whole_file.h and directory.h beside it build on it; other code does not call it directly if one of
// them has what it needs.
#pragma once
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

/// The calls as POSIX defines them: a result of -1 means failure, and errno has the reason. Several threads
/// may call the same object.
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
    int64_t allocated_bytes =
        0;  ///< on the disk: fewer if the file has holes; 0 if the file system does not say
  };

  virtual ~Io() = default;
  /// New files get mode 0666 less the umask. `flags` as for open(2); O_CLOEXEC is added.
  virtual int open(const std::filesystem::path& path, int flags) = 0;
  virtual int close(int file) = 0;
  virtual ssize_t read(int file, void* bytes, size_t count) = 0;
  virtual ssize_t pread(int file, void* bytes, size_t count, int64_t offset) = 0;
  virtual ssize_t write(int file, const void* bytes, size_t count) = 0;
  virtual ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) = 0;
  virtual int truncate(int file, int64_t bytes) = 0;
  virtual int fsync(int file) = 0;
  virtual int status(int file, Status& status) = 0;
  /// Begins to write these bytes of the page cache to the device, and does not wait. Only advice: never
  /// fails, and an error of the device is fsync's to tell.
  virtual void start_writing(int file, int64_t offset, int64_t bytes) = 0;
  /// Waits until these bytes have gone from the page cache to the device. Does not make them durable, as
  /// fsync does: the device may have a cache, and the file's size and places may not be written yet.
  /// Success if the file system cannot tell.
  virtual int wait_written(int file, int64_t offset, int64_t bytes) = 0;
  /// Drops these bytes of a file (0: all to its end) from the page cache if the device has them, so that the
  /// next read asks the device. Only advice: never fails.
  virtual void forget(int file, int64_t offset, int64_t bytes) = 0;
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual int unlink(const std::filesystem::path& path) = 0;
  virtual int mkdir(const std::filesystem::path& path) = 0;
  virtual int rmdir(const std::filesystem::path& path) = 0;
  /// Appends the entries of `directory` in any order, without "." and "..". Follows a link given as
  /// `directory`.
  virtual int list(const std::filesystem::path& directory, std::vector<Entry>& entries) = 0;
  /// Does not follow a link: the status of a link has both flags false.
  virtual int status(const std::filesystem::path& path, Status& status) = 0;
  /// Bytes that this user may still write on the file system of `path`, from statvfs(3).
  virtual int free_bytes(const std::filesystem::path& path, int64_t& bytes) = 0;
};

/// The real file system. Has no state.
class PosixIo : public Io {
 public:
  int open(const std::filesystem::path& path, int flags) override;
  int close(int file) override;
  ssize_t read(int file, void* bytes, size_t count) override;
  ssize_t pread(int file, void* bytes, size_t count, int64_t offset) override;
  ssize_t write(int file, const void* bytes, size_t count) override;
  ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override;
  int truncate(int file, int64_t bytes) override;
  int fsync(int file) override;
  int status(int file, Status& status) override;
  void start_writing(int file, int64_t offset, int64_t bytes) override;
  int wait_written(int file, int64_t offset, int64_t bytes) override;
  void forget(int file, int64_t offset, int64_t bytes) override;
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  int unlink(const std::filesystem::path& path) override;
  int mkdir(const std::filesystem::path& path) override;
  int rmdir(const std::filesystem::path& path) override;
  int list(const std::filesystem::path& directory, std::vector<Entry>& entries) override;
  int status(const std::filesystem::path& path, Status& status) override;
  int free_bytes(const std::filesystem::path& path, int64_t& bytes) override;
};

/// A PosixIo for code whose tests inject no faults.
Io& posix_io();

/// The system refused a call. This alone does not mean that a file is damaged; `is_absence` says whether
/// something does not exist.
class IoError : public Error {
 public:
  IoError(ExitCode code, const std::string& what, const std::string& hint, int number)
      : Error(code, what, hint), number_(number) {}
  bool is_absence() const { return number_ == ENOENT || number_ == ENOTDIR; }

 private:
  int number_;  ///< errno
};

/// Throws IoError(`code`): "PATH: cannot WHAT: reason", the reason from the errno value `error`, and a hint
/// if the error has an obvious one.
[[noreturn]] void fail_storage(const std::filesystem::path& path, std::string_view what, int error,
                               ExitCode code = ExitCode::kStorage);

}  // namespace ripstop
