#pragma once
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace ripstop {

/// The numbers that a field or a config key may have.
struct ValueRange {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  ///< `least` itself is refused
  bool below_most = false;   ///< `most` itself is refused
};

/// Returns nullopt if `text` is anything but one decimal integer, without +, of 64 bits.
inline std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// Like parse_integer, but returns nullopt for a minus sign, too.
inline std::optional<int64_t> parse_whole_number(std::string_view text) {
  if (text.empty() || text.front() == '-') return std::nullopt;
  return parse_integer(text);
}

}  // namespace ripstop
