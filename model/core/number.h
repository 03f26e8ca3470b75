// Numbers from text.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ripstop {

/// Parses a decimal integer. Returns nullopt if `text` has anything else, or if the integer does not fit.
inline std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// Parses a decimal integer >= 0 without a sign, like parse_integer.
inline std::optional<int64_t> parse_whole_number(std::string_view text) {
  if (text.empty() || text.front() == '-') return std::nullopt;
  return parse_integer(text);
}

}  // namespace ripstop
