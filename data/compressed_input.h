// Reads files that may be compressed or archives, as a stream in bounded memory. The only place that knows
// libarchive.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace ripstop {

/// A plain or gzip file as a stream of lines. All members throw Error(kInputData) with the file and the line
/// if the file is missing, damaged or cut short, if it grows more than a thousandfold when unpacked, or if a
/// line is over 64 MiB.
class LineInput {
 public:
  /// Opens a file or a pipe; "-" is standard input. Waits for the first bytes of a pipe.
  explicit LineInput(const std::filesystem::path& path);
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  /// Reads the next line into `line`, without its "\n" (a "\r" before it stays). Drops a byte order mark at
  /// the begin of the file. Returns false at the end. From a pipe, a line is given as soon as it is there.
  bool next(std::string& line);
  /// Number of the line that next() gave, from 1.
  int64_t line_number() const;
  /// Bytes of the file read so far, counted as they lie on disk.
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The regular files inside a .tar, .tar.gz or .tgz, one after another. Throws the errors of LineInput.
class TarInput {
 public:
  explicit TarInput(const std::filesystem::path& path);
  ~TarInput();
  TarInput(const TarInput&) = delete;
  TarInput& operator=(const TarInput&) = delete;

  /// Moves to the next regular file; false at the end.
  bool next();
  /// Its path inside the archive.
  const std::string& name() const;
  /// All its bytes. Throws Error(kInputData) if there are more than 64 MiB.
  std::string content();
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
