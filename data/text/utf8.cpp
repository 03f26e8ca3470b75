#include "data/text/utf8.h"

#include <fmt/ranges.h>

#include <cstring>

namespace ripstop {

// Source: table 3-7 of the Unicode standard.
size_t sequence_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && second < 0xa0, surrogate = first == 0xed && second >= 0xa0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && second < 0x90, beyond = first == 0xf4 && second >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>('A' <= c && c <= 'Z' ? c + 32 : c);
  return result;
}

uint32_t code_point(std::string_view sequence) {
  // The first byte of a sequence of n > 1 bytes begins with n ones and a zero.
  uint32_t value = static_cast<unsigned char>(sequence.front());
  if (sequence.size() > 1) value &= 0xffu >> (sequence.size() + 1);
  for (const char byte : sequence.substr(1)) value = value << 6 | (static_cast<unsigned char>(byte) & 0x3fu);
  return value;
}

namespace {

/// Whether Python's str.isspace() is true for the code point.
bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace

std::string utf8(uint32_t letter) {
  const auto rest = [&](int shift) { return static_cast<char>(0x80 | (letter >> shift & 0x3f)); };
  if (letter < 0x80) return {static_cast<char>(letter)};
  if (letter < 0x800) return {static_cast<char>(0xc0 | letter >> 6), rest(0)};
  if (letter < 0x10000) return {static_cast<char>(0xe0 | letter >> 12), rest(6), rest(0)};
  return {static_cast<char>(0xf0 | letter >> 18), rest(12), rest(6), rest(0)};
}

std::optional<int64_t> invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Most text is ASCII: eight bytes at once are several times faster.
    uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080ull) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const size_t bytes = sequence_bytes(text.substr(at));
    if (bytes == 0) return static_cast<int64_t>(at);
    at += bytes;
  }
  return std::nullopt;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = sequence_bytes(text);
    if (bytes == 0 || !is_space(code_point(text.substr(0, bytes)))) break;
    text.remove_prefix(bytes);
  }
  while (!text.empty()) {
    // Find the first byte of the last sequence.
    size_t bytes = 1;
    while (bytes < 4 && bytes < text.size() &&
           (static_cast<unsigned char>(text[text.size() - bytes]) & 0xc0) == 0x80) {
      ++bytes;
    }
    if (!is_space(code_point(text.substr(text.size() - bytes)))) break;
    text.remove_suffix(bytes);
  }
  return text;
}

std::vector<std::string_view> words_in(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; (begin = text.find_first_not_of(separators, begin)) != std::string_view::npos;) {
    words.push_back(text.substr(begin, text.find_first_of(separators, begin) - begin));
    begin += words.back().size();
  }
  return words;
}

std::string some_of(std::span<const std::string> names, size_t most) {
  const size_t more = names.size() - std::min(names.size(), most);
  return fmt::format("{}{}", fmt::join(names.first(names.size() - more), ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace ripstop
