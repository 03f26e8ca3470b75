// TextLines: reads text files with one text a line, or one JSON object a line.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/text/line_input.h"

namespace ripstop {

/// Reads the UTF-8 lines of a plain or gzip file, or of standard input if `path` is "-". Lines may end with
/// LF or CRLF. Accepts a byte order mark at the start and a missing line end at the end.
class TextLines {
 public:
  /// Throws Error(kInputData) if the file cannot be opened.
  explicit TextLines(const std::string& path) : input_(path) {}

  /// Reads the next line into `line`, without its line end. Returns false at the end of the file.
  /// Throws Error(kInputData), with file and line, for invalid UTF-8.
  /// Throws the errors of LineInput.
  bool next(std::string& line);
  /// Number of the line that next() returned last; the first line is 1.
  int64_t number() const { return input_.line_number(); }
  /// The path of the file, or "standard input".
  const std::string& name() const { return input_.name(); }
  /// Place of the last line, for messages: "NAME:NUMBER".
  std::string place() const;

 private:
  LineInput input_;
};

/// Reads the texts of the file `path`; "-" stands for standard input. If the first line that is not blank is
/// a JSON object, every line that is not blank must be a JSON object, and its member "summary" is the text.
/// Otherwise each line is a text. Throws Error(kInputData) for a bad line, with file and line, and for a file
/// without any text.
std::vector<std::string> read_summaries(const std::string& path);

}  // namespace ripstop
