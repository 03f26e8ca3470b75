#include "train/report/screen_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

namespace ripstop {
namespace {

struct Letter {
  size_t bytes = 1;
  int64_t columns = 1;
};

// Scripts whose letters take two columns: Hangul, CJK, full-width forms, emoji.
bool is_wide(uint32_t code) {
  constexpr std::array<std::array<uint32_t, 2>, 8> kWide = {{{0x1100, 0x115F},
                                                             {0x2E80, 0xA4CF},
                                                             {0xAC00, 0xD7A3},
                                                             {0xF900, 0xFAFF},
                                                             {0xFE30, 0xFE6F},
                                                             {0xFF00, 0xFF60},
                                                             {0x1F300, 0x1FAFF},
                                                             {0x20000, 0x3FFFD}}};
  return std::any_of(kWide.begin(), kWide.end(),
                     [&](const auto& range) { return code >= range[0] && code <= range[1]; });
}

// The first letter of `text`, which is not empty.
Letter first_letter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t bytes = byte(0) < 0xC0 ? 1 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : byte(0) < 0xF8 ? 4 : 1;
  if (bytes == 1 || bytes > text.size()) return {};
  uint32_t code = byte(0) & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  return {bytes, is_wide(code) ? 2 : 1};
}

// A name of a file may hold escape sequences, which must not reach the terminal. 0x80 to 0x9F are control
// characters too; in UTF-8 they follow 0xC2.
std::string without_control_characters(std::string_view text) {
  std::string result(text);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto byte = static_cast<unsigned char>(result[i]);
    if (byte < 0x20 || byte == 0x7F) result[i] = ' ';
    if (byte == 0xC2 && i + 1 < result.size() && static_cast<unsigned char>(result[i + 1]) < 0xA0)
      result[i] = result[i + 1] = ' ';
  }
  return result;
}

// `column` columns are taken in front of the line.
std::string wrap_line(const std::string& line, int64_t column, int64_t width, const std::string& indent) {
  if (width <= 0 || column + screen_columns(line) <= width) return line;
  const size_t text = std::min(line.find_first_not_of(' '), line.size());
  const std::string gap = line.find("  ", text) != std::string::npos ? "  " : " ";
  std::string result;
  size_t before = 0;  // spaces in front of the piece
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find(gap, std::max(begin, text)), line.size());
    const std::string piece = line.substr(begin, end - begin);
    const int64_t columns = screen_columns(piece);
    const bool fits = column + static_cast<int64_t>(before) + columns <= width;
    result += begin == 0 || fits ? std::string(before, ' ') : "\n" + indent;
    column = begin == 0 || fits ? column + static_cast<int64_t>(before) : std::ssize(indent);
    result += piece;
    column += columns;
    begin = std::min(line.find_first_not_of(' ', end), line.size());
    before = begin - end;
  }
  return result;
}

}  // namespace

int64_t screen_columns(std::string_view text) {
  int64_t columns = 0;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    columns += letter.columns;
    text.remove_prefix(letter.bytes);
  }
  return columns;
}

std::string cut_to_width(std::string_view text, int64_t width) {
  const std::string line = without_control_characters(text);
  if (width <= 0) return line;
  int64_t columns = 0;
  for (size_t at = 0; at < line.size();) {
    const Letter letter = first_letter(std::string_view(line).substr(at));
    columns += letter.columns;
    if (columns > width) return line.substr(0, at);
    at += letter.bytes;
  }
  return line;
}

std::string wrap_to_width(std::string_view text, int64_t width, int64_t indent) {
  const std::string spaces(static_cast<size_t>(indent), ' ');
  std::string result;
  for (int64_t column = 0;; column = indent) {
    const size_t end = text.find('\n');
    result += wrap_line(without_control_characters(text.substr(0, end)), column, width, spaces);
    if (end == std::string_view::npos) return result;
    text.remove_prefix(end + 1);
    result += "\n" + (text.empty() ? "" : spaces);
  }
}

}  // namespace ripstop
