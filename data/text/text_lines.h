#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/text/line_input.h"

namespace ripstop {

/// Reads UTF-8 lines of a plain or gzip file, or of standard input if `path` is "-". Lines end with LF or
/// CRLF; a byte order mark and a missing last line end are accepted.
class TextLines {
 public:
  /// Throws the errors of LineInput.
  explicit TextLines(const std::string& path) : input_(path) {}

  /// Reads the next line without its line end. Returns false at the end. Throws Error(kInputData), with file
  /// and line, for invalid UTF-8, and the errors of LineInput.
  bool next(std::string& line);
  /// Number of the latest line, from 1.
  int64_t number() const { return input_.line_number(); }
  /// The path, or "standard input".
  const std::string& name() const { return input_.name(); }
  /// "NAME:NUMBER" of the latest line.
  std::string place() const { return name() + ":" + std::to_string(number()); }

 private:
  LineInput input_;
};

/// Reads the texts of `path`; "-" is standard input. If the first line that is not blank is a JSON object,
/// all lines that are not blank must be JSON objects, and their members `field` are the texts. Otherwise each
/// line is a text. Throws the errors of TextLines, and Error(kInputData) for a bad object, with file and
/// line, and for a file without lines. `ids`, if not null, gets the member "id" of each object as JSON, ""
/// for an object without "id"; plain lines add nothing to it.
std::vector<std::string> read_summaries(const std::string& path, std::vector<std::string>* ids = nullptr,
                                        const std::string& field = "summary");

}  // namespace ripstop
