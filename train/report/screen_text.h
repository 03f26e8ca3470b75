// Text that fits the width of a terminal.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ripstop {

/// How many columns a terminal takes for `text`, UTF-8 without control characters. Bytes that are no UTF-8
/// count 1.
int64_t screen_columns(std::string_view text);

/// One line for a terminal: control characters, line ends included, become spaces, and what exceeds `width`
/// columns is cut. No cut if `width` is 0.
std::string cut_to_width(std::string_view text, int64_t width);

/// Breaks the lines of `text` at spaces, so that none exceeds `width` columns. All lines but the first get
/// `indent` spaces in front. A line with columns ("loss 2.31  eta 3s") breaks between columns alone. A word
/// that is too long by itself, as a path, is left whole: people copy it. Control characters other than line
/// ends become spaces. No breaks if `width` is 0.
std::string wrap_to_width(std::string_view text, int64_t width, int64_t indent);

}  // namespace ripstop
