// Files read and written at byte offsets, whole or not at all, and what makes them last on disk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "model/core/error.h"

namespace ripstop {

/// A file open for reading. `read_at` may be called from several threads at once. Owns a descriptor.
class InputFile {
 public:
  /// Throws Error(`refusal`) where the file is missing or not a regular file.
  explicit InputFile(const std::filesystem::path& path, ExitCode refusal = ExitCode::kInputData);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  /// Length when it was opened.
  int64_t bytes() const { return bytes_; }
  /// Reads exactly `bytes` bytes from byte `offset` on. Short reads are continued; ESTALE and EIO are tried
  /// three times, then Error(kStorage). Throws Error(`refusal`) where the file ends earlier.
  void read_at(int64_t offset, void* out, int64_t bytes) const;

 private:
  std::filesystem::path path_;
  ExitCode refusal_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

/// A file open for writing. Owns a descriptor. All members throw Error(kStorage).
class OutputFile {
 public:
  enum class Mode { kCreate, kExisting };
  /// kCreate: the file must not exist. kExisting: it must, and keeps its bytes.
  explicit OutputFile(const std::filesystem::path& path, Mode mode = Mode::kCreate);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  /// Writes exactly `bytes` bytes at byte `offset`.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  /// Writes after what was appended before; buffered up to 64 KiB, so `flush` before others read.
  void append(const void* data, int64_t bytes);
  void flush();
  /// Bytes appended so far.
  int64_t appended() const { return appended_; }
  /// Flushes, then makes the bytes last through a power loss.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t appended_ = 0;
  std::string buffer_;
};

/// Copies `bytes` bytes between open files, through a bounded buffer.
void copy_range(const InputFile& from, int64_t from_offset, OutputFile& to, int64_t to_offset, int64_t bytes);

/// Makes the names in `directory` last through a power loss. Throws Error(kStorage).
void sync_directory(const std::filesystem::path& directory);

/// The whole file as a string. Throws Error(`refusal`) where it is missing, unreadable or longer than
/// `most_bytes`.
std::string read_whole_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal);

}  // namespace ripstop
