// Open files: InputFile and OutputFile read and write at byte offsets, AppendFile appends to logs. They
// continue interrupted and short calls. Each error names the file, the operation and the reason.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "data/files/io.h"

namespace ripstop {

/// Owns a file descriptor. `io` must outlive it. The destructor closes the file and ignores errors.
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
  int value() const { return value_; }  ///< -1 if there is none
  /// Passes the ownership to the caller.
  int release() { return std::exchange(value_, -1); }

 private:
  Io* io_ = nullptr;
  int value_ = -1;
};

/// A regular file open for reading. Several threads may call `read_at` at once.
class InputFile {
 public:
  /// Opens a file of the user. Follows links. Throws Error(`refusal`) if it is missing or not a regular file.
  explicit InputFile(const std::filesystem::path& path, ExitCode refusal = ExitCode::kInputData);
  /// Opens a file that ripstop wrote. Throws Error(kStorage) if it is missing or not a regular file, or if
  /// `path` is a symbolic link: ripstop makes none.
  InputFile(Io& io, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  ///< the length when it was opened
  /// Reads exactly `bytes` bytes from byte `offset` on. Tries three times on EIO and ESTALE, then throws
  /// Error(kStorage). Throws Error(`refusal`) if the file ends too early.
  void read_at(int64_t offset, void* out, int64_t bytes) const;
  /// Drops the file, or these bytes, from the page cache (Io::forget).
  void forget() const { forget(0, 0); }
  void forget(int64_t offset, int64_t bytes) const { file_.io().forget(file_.value(), offset, bytes); }

 private:
  InputFile(Io& io, const std::filesystem::path& path, ExitCode refusal, int flags);

  std::filesystem::path path_;
  ExitCode refusal_;
  Descriptor file_;
  int64_t bytes_ = 0;
};

/// A file open for writing. All members throw Error(kStorage). The destructor drops appended bytes that were
/// not flushed. Several threads may call `write_at`, `start_writing` and `wait_written` at once.
class OutputFile {
 public:
  enum class Mode {
    kCreate,    ///< makes the file; an error if it exists
    kExisting,  ///< opens the file and keeps its bytes; an error if it does not exist
  };
  explicit OutputFile(const std::filesystem::path& path, Mode mode = Mode::kCreate)
      : OutputFile(posix_io(), path, mode) {}
  OutputFile(Io& io, const std::filesystem::path& path, Mode mode = Mode::kCreate);

  const std::filesystem::path& path() const { return path_; }
  /// Writes exactly `bytes` bytes at byte `offset`.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  /// Starts to write these bytes to the device (Io::start_writing). The system itself starts only after
  /// hundreds of megabytes, which `sync` would then have to wait for.
  void start_writing(int64_t offset, int64_t bytes) {
    file_.io().start_writing(file_.value(), offset, bytes);
  }
  /// Waits until these bytes have gone to the device (Io::wait_written). They still need `sync`.
  void wait_written(int64_t offset, int64_t bytes) const;
  /// Writes behind the bytes appended before, through a buffer of 64 KiB: call `flush` before others read.
  void append(const void* data, int64_t bytes);
  void flush();
  /// Flushes, then waits until the bytes survive a power loss.
  void sync();
  /// Flushes and closes. NFS reports a full disk only here.
  void close();

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t appended_ = 0;  // bytes, with those in buffer_
  std::string buffer_;
};

/// A log, which grows by whole lines. A failure or SIGKILL leaves at most one torn line, the last, which the
/// next AppendFile cuts off. All members throw Error(kStorage).
class AppendFile {
 public:
  /// Opens or makes `path`. Cuts off the bytes behind the last line end. Throws if it is not a regular file.
  explicit AppendFile(const std::filesystem::path& path) : AppendFile(posix_io(), path) {}
  AppendFile(Io& io, const std::filesystem::path& path);

  /// Appends `line`, whose last character is a line end. Readers see it when this returns. A failed call
  /// leaves no part of the line.
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

/// Call it after a read that failed with the errno value `error`, with `tries` 0 at first. If another read
/// may succeed, waits a moment and returns; the third time, and for other errors, throws as fail_storage
/// does.
void wait_for_storage(const std::filesystem::path& path, std::string_view what, int error, int& tries);

/// Copies `bytes` bytes between open files, 1 MiB at a time.
void copy_range(const InputFile& from, int64_t from_offset, OutputFile& to, int64_t to_offset, int64_t bytes);

}  // namespace ripstop
