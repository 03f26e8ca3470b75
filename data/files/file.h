// InputFile and OutputFile read and write at byte offsets, AppendFile appends to logs. All continue
// interrupted and short reads and writes. Each error names the file and the reason.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "data/files/io.h"

namespace ripstop {

/// Owns a file descriptor. The destructor closes it and ignores errors. `io` must outlive this object.
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
  int value() const { return value_; }  ///< -1: no descriptor
  /// Returns the descriptor, which the caller then owns.
  int release() { return std::exchange(value_, -1); }

 private:
  Io* io_ = nullptr;
  int value_ = -1;
};

/// A regular file. Several threads may call `read_at` at once.
class InputFile {
 public:
  /// Opens a user's file, also through a link. Throws Error(`refusal`) on failure, or if it is not regular.
  explicit InputFile(const std::filesystem::path& path, ExitCode refusal = ExitCode::kInputData);
  /// Opens a file that ripstop wrote. Throws Error(kStorage) on failure, or if it is a link (ripstop makes no
  /// links) or not regular.
  InputFile(Io& io, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  ///< the length at opening
  /// Reads exactly `bytes` bytes from byte `offset` on. Tries up to three times on EIO and ESTALE. Throws
  /// Error(kStorage) if reading fails, Error(`refusal`) if the file ends too early.
  void read_at(int64_t offset, void* out, int64_t bytes) const;
  /// Same as read_at(), into a new text.
  std::string text_at(int64_t offset, int64_t bytes) const {
    std::string text(static_cast<size_t>(bytes), '\0');
    read_at(offset, text.data(), bytes);
    return text;
  }
  /// Drops bytes from the page cache (Io::forget): all bytes, or `bytes` bytes from `offset` on.
  void forget() const { forget(0, 0); }
  void forget(int64_t offset, int64_t bytes) const { file_.io().forget(file_.value(), offset, bytes); }

 private:
  InputFile(Io& io, const std::filesystem::path& path, ExitCode refusal, int flags);

  std::filesystem::path path_;
  ExitCode refusal_;
  Descriptor file_;
  int64_t bytes_ = 0;
};

/// A file to write. All members throw Error(kStorage). The destructor drops appended bytes that were not
/// flushed. Several threads may call write_at(), start_writing() and wait_written() at once.
class OutputFile {
 public:
  enum class Mode {
    kCreate,    ///< makes the file; throws if it exists
    kExisting,  ///< opens the file and keeps its bytes; throws if it does not exist
  };
  explicit OutputFile(const std::filesystem::path& path, Mode mode = Mode::kCreate)
      : OutputFile(posix_io(), path, mode) {}
  OutputFile(Io& io, const std::filesystem::path& path, Mode mode = Mode::kCreate);

  const std::filesystem::path& path() const { return path_; }
  void write_at(int64_t offset, const void* data, int64_t bytes);
  /// Starts the transfer of these bytes to the device. Otherwise the system may start only after hundreds of
  /// megabytes, for which sync() would then have to wait.
  void start_writing(int64_t offset, int64_t bytes) {
    file_.io().start_writing(file_.value(), offset, bytes);
  }
  /// Waits until these bytes are on the device (Io::wait_written). Only sync() makes them durable.
  void wait_written(int64_t offset, int64_t bytes) const;
  /// Appends, from byte 0 on, through a buffer of 64 KiB. Readers see the bytes after flush().
  void append(const void* data, int64_t bytes);
  void flush();
  /// Flushes, then waits until the bytes survive a power loss.
  void sync();
  /// Flushes, then closes the file. NFS may report a full disk here.
  void close();

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t appended_ = 0;  // appended bytes, including buffer_
  std::string buffer_;
};

/// A log of whole lines. A failure or SIGKILL leaves at most one torn last line, which the next AppendFile
/// cuts off. All members throw Error(kStorage).
class AppendFile {
 public:
  /// Opens or makes `path`, and cuts off bytes after the last line end. Throws if it is not a regular file.
  explicit AppendFile(const std::filesystem::path& path) : AppendFile(posix_io(), path) {}
  AppendFile(Io& io, const std::filesystem::path& path);

  /// Appends `line`; the next AppendFile cuts it off if it has no line end. Readers see the line when this
  /// call returns. If the call throws, it has tried to cut off what it wrote.
  void append(std::string_view line);
  /// Keeps only the first `bytes` bytes.
  void cut(int64_t bytes);
  void sync();
  /// Returns false if the path now has another file or no file. Returns true if the system does not tell.
  bool is_at_path() const;
  /// Reads the whole file, even after its name was removed.
  std::string text() const;

 private:
  int64_t size() const;
  int64_t end_of_whole_lines() const;

  std::filesystem::path path_;
  Descriptor file_;
};

/// Call it after a read that failed with the errno value `error`. For EIO and ESTALE, waits a moment and
/// returns, so that the caller reads again. At the third failure, or for another error, throws as
/// fail_storage(). `tries` counts the failures; start with 0.
void wait_for_storage(const std::filesystem::path& path, std::string_view what, int error, int& tries);

/// Copies the first `bytes` bytes of `from` to byte `offset` of `to`.
void copy_begin(const InputFile& from, OutputFile& to, int64_t offset, int64_t bytes);

}  // namespace ripstop
