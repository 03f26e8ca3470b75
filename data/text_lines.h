// Text files line by line: one text a line, or one JSON object a line.
#pragma once
#include <cstdint>
#include <fstream>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Reads UTF-8 lines of a file, or of standard input where `path` is "-". Line ends may be LF or CRLF; a byte
/// order mark at the start and a missing line end at the end are accepted.
class TextLines {
 public:
  /// Throws Error(kInputData) for what cannot be opened.
  explicit TextLines(const std::string& path);

  /// Reads the next line into `line`, without its end; false at the end of the file. Throws Error(kInputData)
  /// naming file and line for invalid UTF-8, Error(kStorage) where reading fails.
  bool next(std::string& line);

  /// Of the line last read; the first is 1.
  int64_t number() const { return number_; }

  /// "FILE:LINE", for messages.
  std::string place() const;

 private:
  std::string name_;
  std::ifstream file_;
  std::istream* input_;
  int64_t number_ = 0;
};

/// Where `text` stops being UTF-8 (RFC 3629: shortest form, no surrogates, at most U+10FFFF): the offset of
/// the first byte of the first bad sequence, or text.size().
int64_t valid_utf8_bytes(std::string_view text);

/// The texts of `path` ("-" = standard input). Where its first line that is not blank is a JSON object, each
/// line is one and its string `summary` is the text, blank lines aside; else each line is a text as it
/// stands. Throws Error(kInputData) naming file and line for what does not fit, and for a file without a
/// text.
std::vector<std::string> read_summaries(const std::string& path);

}  // namespace ripstop
