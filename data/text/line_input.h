#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "data/text/unpacked_input.h"

namespace ripstop {

/// Reads a plain or gzip file line by line, in bounded memory. Throws the errors of UnpackedInput, and
/// Error(kInputData) with file and line if a line is longer than about 64 MiB.
class LineInput {
 public:
  /// "-" is standard input. Waits for the first bytes of a pipe.
  explicit LineInput(const std::filesystem::path& path);

  /// Reads the next line into `line` without its "\n"; keeps a "\r" before the "\n". Drops a byte order mark
  /// at the start of the file. Returns false at the end. Returns a line of a pipe as soon as it has arrived.
  bool next(std::string& line);
  /// Number of the latest line, from 1.
  int64_t line_number() const { return line_number_; }
  int64_t bytes_read() const { return input_.bytes_read(); }
  const std::string& name() const { return input_.name(); }

 private:
  bool refill();

  UnpackedInput input_;
  std::string buffer_;
  size_t at_ = 0;  // start of the next line in buffer_
  int64_t line_number_ = 0;
};

}  // namespace ripstop
