// Io: every file operation of checkpoints, one virtual function each, so that tests can make any of them
// fail. File and the functions below turn them into what checkpoints need: whole writes, whole reads, clear
// errors.
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

/// The operations as POSIX has them: a result of -1 means failure and errno says why. The calls of one object
/// may come from several threads.
class Io {
 public:
  struct Entry {
    std::string name;
    bool is_directory = false;
  };
  struct Status {
    bool is_file = false;  ///< a regular file; links are not followed
    bool is_directory = false;
    int64_t bytes = 0;
  };

  virtual ~Io() = default;
  /// Files are made with mode 0666 less the umask; `flags` as for open(2).
  virtual int open(const std::filesystem::path& path, int flags) = 0;
  virtual int close(int file) = 0;
  virtual ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) = 0;
  virtual ssize_t pread(int file, void* bytes, size_t count, int64_t offset) = 0;
  virtual int fsync(int file) = 0;
  /// Drops what the page cache holds of a file, so that the next read asks the device; a wish.
  virtual void forget(int file) = 0;
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual int unlink(const std::filesystem::path& path) = 0;
  virtual int mkdir(const std::filesystem::path& path) = 0;
  virtual int rmdir(const std::filesystem::path& path) = 0;
  virtual int list(const std::filesystem::path& directory, std::vector<Entry>& entries) = 0;
  virtual int status(const std::filesystem::path& path, Status& status) = 0;
  /// Bytes that this user may still write on the file system of `path`, by statvfs.
  virtual int free_bytes(const std::filesystem::path& path, int64_t& bytes) = 0;
};

/// The real file system. Holds nothing.
class PosixIo : public Io {
 public:
  int open(const std::filesystem::path& path, int flags) override;
  int close(int file) override;
  ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override;
  ssize_t pread(int file, void* bytes, size_t count, int64_t offset) override;
  int fsync(int file) override;
  void forget(int file) override;
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  int unlink(const std::filesystem::path& path) override;
  int mkdir(const std::filesystem::path& path) override;
  int rmdir(const std::filesystem::path& path) override;
  int list(const std::filesystem::path& directory, std::vector<Entry>& entries) override;
  int status(const std::filesystem::path& path, Status& status) override;
  int free_bytes(const std::filesystem::path& path, int64_t& bytes) override;
};

/// An open file. Everything throws Error(kStorage) naming the file, the operation and the reason; interrupted
/// calls and short counts are continued.
class File {
 public:
  /// A new file, for writing; refused where it exists.
  static File create(Io& io, const std::filesystem::path& path);
  /// For reading; a symbolic link is refused.
  static File open(Io& io, const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  /// Closes without a word: for files that were read, or given up.
  ~File();

  void write(const void* bytes, int64_t count, int64_t offset);
  /// All `count` bytes; refused where the file ends before.
  void read(void* bytes, int64_t count, int64_t offset) const;
  void sync();
  void forget() { io_->forget(file_); }
  /// Closes and says so where that fails (NFS reports a full disk here).
  void close();
  const std::filesystem::path& path() const { return path_; }

 private:
  File(Io& io, std::filesystem::path path, int file) : io_(&io), path_(std::move(path)), file_(file) {}
  Io* io_;
  std::filesystem::path path_;
  int file_;
};

/// The system refused a call. That says nothing about what is on the disk, unless something is not there.
class IoError : public Error {
 public:
  IoError(const std::string& what, const std::string& hint, int number)
      : Error(ExitCode::kStorage, what, hint), number_(number) {}
  bool is_absence() const { return number_ == ENOENT || number_ == ENOTDIR; }

 private:
  int number_;  ///< errno
};

/// Throws IoError: "PATH: cannot WHAT: reason of errno", with a hint where errno has an obvious one.
[[noreturn]] void fail_storage(const std::filesystem::path& path, std::string_view what, int error);

/// Creates `path` with `bytes`, synced. Throws Error(kStorage), also where it exists.
void write_file(Io& io, const std::filesystem::path& path, std::string_view bytes);
/// The whole file. Throws Error(kStorage), also where it is larger than `most_bytes`.
std::string read_file(Io& io, const std::filesystem::path& path, int64_t most_bytes);
/// Makes names in `directory` (new files, renames) survive a power loss. Throws Error(kStorage).
void sync_directory(Io& io, const std::filesystem::path& directory);
/// Throws Error(kStorage).
void rename_path(Io& io, const std::filesystem::path& from, const std::filesystem::path& to);
/// Throws Error(kStorage); no entries where the directory does not exist.
std::vector<Io::Entry> list_directory(Io& io, const std::filesystem::path& directory);
/// Removes a directory with all in it; links are removed, not followed. True where it is gone; throws
/// nothing.
bool remove_tree(Io& io, const std::filesystem::path& path);

}  // namespace ripstop
