// Files that may be compressed or archives, read as a stream in bounded memory. The only place that knows
// libarchive.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace ripstop {

/// A plain or gzip file as a stream of lines. All members throw Error(kInputData), with the file and the
/// line: for a file that is missing, damaged or cut short, that grows more than a thousandfold when unpacked,
/// or that has a line over 64 MiB.
class LineInput {
 public:
  explicit LineInput(const std::filesystem::path& path);
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  /// The next line without its "\n" (a "\r" before it stays) into `line`; a byte order mark that begins the
  /// file is dropped. False at the end of the file.
  bool next(std::string& line);
  /// Number of the line that next() gave, from 1.
  int64_t line_number() const;
  /// Bytes of the file used so far, as it lies on disk.
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The regular files inside a .tar, .tar.gz or .tgz, one after another. Throws as LineInput does.
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
  /// All its bytes; refused above 64 MiB.
  std::string content();
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
