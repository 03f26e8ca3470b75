#pragma once
#include <string>

namespace ripstop {

/// Returns `text` with spaces in place of control characters, which could break a one-line message or be
/// obeyed by a terminal.
inline std::string in_one_line(std::string text) {
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    // U+0080 to U+009F are control characters, too: in UTF-8 a byte 0xC2 and then a byte below 0xA0.
    const bool is_second = at > 0 && text[at - 1] == '\xc2' && byte >= 0x80 && byte < 0xa0;
    if (byte < ' ' || byte == 0x7f || is_second) text[at] = ' ';
    if (is_second) text[at - 1] = ' ';
  }
  return text;
}

}  // namespace ripstop
