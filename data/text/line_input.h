// LineInput: a text file as a stream of lines.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "data/text/unpacked_input.h"

namespace ripstop {

/// A plain or gzip file as a stream of lines, in bounded memory. All members throw the errors of
/// UnpackedInput, and Error(kInputData) with file and line if a line is over 64 MiB.
class LineInput {
 public:
  /// Opens a file or a pipe; "-" is standard input. Waits for the first bytes of a pipe.
  explicit LineInput(const std::filesystem::path& path);

  /// Reads the next line into `line`, without its "\n" (a "\r" before it stays). Drops a byte order mark at
  /// the begin of the file. Returns false at the end. From a pipe, a line is given as soon as it is there.
  bool next(std::string& line);
  /// Number of the line that next() gave, from 1.
  int64_t line_number() const { return line_number_; }
  /// Bytes of the file read so far, counted as they lie on disk.
  int64_t bytes_read() const { return input_.bytes_read(); }

 private:
  bool refill();

  UnpackedInput input_;
  std::string buffer_;
  size_t at_ = 0;  // of the next line in buffer_
  int64_t line_number_ = 0;
};

}  // namespace ripstop
