// Open files: InputFile and OutputFile at byte offsets, AppendFile for logs. Interrupted and short calls are
// continued; each error names the file, the operation and the reason.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "data/files/io.h"

namespace ripstop {

/// Owns a descriptor of `io`, which must outlive it. Its destructor ignores a failing close.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(Io& io, int value) : io_(&io), value_(value) {}
  Descriptor(Descriptor&& other) noexcept : io_(other.io_), value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(io_, other.io_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) io_->close(value_);
  }

  Io& io() const { return *io_; }
  /// -1 if there is none.
  int value() const { return value_; }
  /// Gives the descriptor away; the caller closes it.
  int release() { return std::exchange(value_, -1); }

 private:
  Io* io_ = nullptr;
  int value_ = -1;
};

/// A regular file open for reading. Several threads may call `read_at` at once.
class InputFile {
 public:
  /// Opens a file that a user gave; follows links. Throws Error(`refusal`) if it is missing or not a regular
  /// file.
  explicit InputFile(const std::filesystem::path& path, ExitCode refusal = ExitCode::kInputData);
  /// Opens a file that ripstop wrote. Throws Error(kStorage) as above, and if `path` is a symbolic link:
  /// ripstop makes none.
  InputFile(Io& io, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// The length when it was opened.
  int64_t bytes() const { return bytes_; }
  /// Reads exactly `bytes` bytes from byte `offset` on. Tries three times on EIO and ESTALE, then throws
  /// Error(kStorage). Throws Error(`refusal`) if the file ends before.
  void read_at(int64_t offset, void* out, int64_t bytes) const;
  /// Drops the file, or these bytes of it, from the page cache, so that the next read asks the device. Only
  /// advice.
  void forget() const { forget(0, 0); }
  void forget(int64_t offset, int64_t bytes) const { file_.io().forget(file_.value(), offset, bytes); }

 private:
  InputFile(Io& io, const std::filesystem::path& path, ExitCode refusal, int flags);

  std::filesystem::path path_;
  ExitCode refusal_;
  Descriptor file_;
  int64_t bytes_ = 0;
};

/// A file open for writing. All members throw Error(kStorage). The destructor drops what was appended and not
/// flushed. Several threads may call `write_at`, `start_writing` and `wait_written` at once.
class OutputFile {
 public:
  enum class Mode {
    kCreate,    ///< makes the file; an error if it exists
    kExisting,  ///< the file must exist, and keeps its bytes
  };
  explicit OutputFile(const std::filesystem::path& path, Mode mode = Mode::kCreate);
  OutputFile(Io& io, const std::filesystem::path& path, Mode mode = Mode::kCreate);

  const std::filesystem::path& path() const { return path_; }
  /// Writes exactly `bytes` bytes at byte `offset`.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  /// Begins to bring these bytes to the device, and does not wait: the system itself would begin with
  /// hundreds of megabytes, and `sync` would find them all.
  void start_writing(int64_t offset, int64_t bytes) {
    file_.io().start_writing(file_.value(), offset, bytes);
  }
  /// Waits until these bytes have gone to the device, if the file system can tell. `sync` is still needed.
  void wait_written(int64_t offset, int64_t bytes) const;
  /// Writes after the bytes appended before, through a buffer of 64 KiB: call `flush` before others read.
  void append(const void* data, int64_t bytes);
  void flush();
  /// Bytes appended so far.
  int64_t appended() const { return appended_; }
  /// Flushes, then waits until the bytes survive a power loss.
  void sync();
  /// Flushes and closes. NFS reports a full disk only here.
  void close();

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t appended_ = 0;
  std::string buffer_;
};

/// A file of lines that only grows, such as a log. After any failure, and after SIGKILL, it holds whole lines
/// and at most one torn last line, which the next AppendFile cuts off. All members throw Error(kStorage).
class AppendFile {
 public:
  /// Opens `path`; makes it if it does not exist. Cuts off the bytes after the last line end. Throws if it is
  /// no regular file.
  explicit AppendFile(const std::filesystem::path& path) : AppendFile(posix_io(), path) {}
  AppendFile(Io& io, const std::filesystem::path& path);

  /// Appends `line`, which ends with a line end. Readers see it when this returns. If it fails, no part of
  /// the line stays.
  void append(std::string_view line);
  /// Keeps the first `bytes` bytes.
  void cut(int64_t bytes);
  /// Waits until all lines survive a power loss.
  void sync();

 private:
  int64_t size() const;
  int64_t end_of_whole_lines() const;

  std::filesystem::path path_;
  Descriptor file_;
};

/// To be called if a read failed with the errno value `error`. Returns, after a moment, if reading again may
/// help; `tries` counts, from 0. Else throws as fail_storage does.
void wait_for_storage(const std::filesystem::path& path, std::string_view what, int error, int& tries);

/// Copies `bytes` bytes between open files, 1 MiB at a time.
void copy_range(const InputFile& from, int64_t from_offset, OutputFile& to, int64_t to_offset, int64_t bytes);

}  // namespace ripstop
