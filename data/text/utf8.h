#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// U+2581, which stands for a space in the pieces of SentencePiece.
inline constexpr std::string_view kSpacePiece = "\xe2\x96\x81";

/// Bytes of the valid UTF-8 sequence at the start of `text`; 0 if there is none, 1 if `text` is empty.
size_t sequence_bytes(std::string_view text);

/// The index of the first byte of the character to which byte `at` of `text`, valid UTF-8, belongs. Returns
/// `at` if `text` ends there.
inline size_t character_begin(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

/// `text`, or if it has more than `most` bytes the whole characters among those, and "...".
inline std::string begin_of(std::string_view text, size_t most = 40) {
  if (text.size() <= most) return std::string(text);
  return std::string(text.substr(0, character_begin(text, most))) + "...";
}

/// `text` with small ASCII letters.
std::string lower_case(std::string_view text);

/// The code point of `sequence`, one valid UTF-8 sequence.
uint32_t code_point(std::string_view sequence);

/// The UTF-8 of a code point.
std::string utf8(uint32_t letter);

/// Index of the first byte at which `text` is not valid UTF-8; nullopt if all is valid. Stray and missing
/// continuation bytes, overlong forms, surrogates and letters above U+10FFFF are invalid. Source: RFC 3629.
std::optional<int64_t> invalid_utf8(std::string_view text);

/// `text` without the characters `drop`, which are ASCII, at its ends.
inline std::string trimmed(std::string_view text, std::string_view drop) {
  const size_t begin = std::min(text.find_first_not_of(drop), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(drop) + 1 - begin));
}

/// `text` with `to` in place of each `from`, which must not be empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// `text`, valid UTF-8, without the white space at its ends that Python's str.strip() removes.
std::string_view strip(std::string_view text);

/// The words of `text`, none empty; any character of `separators` separates two words.
std::vector<std::string_view> words_in(std::string_view text, std::string_view separators = " ");

/// The first `most` of `names`: "a, b and 3 more"; "a, b" if there are no more.
std::string some_of(std::span<const std::string> names, size_t most);

}  // namespace ripstop
