// Checks UTF-8 from outside, and strips white space.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ripstop {

/// Bytes of the valid UTF-8 sequence that begins `text`, or 0.
size_t sequence_bytes(std::string_view text);

/// The letter of a valid sequence of up to three bytes; 0xffffffff for four.
uint32_t code_point(std::string_view sequence);

/// Finds the first byte at which `text` is not valid UTF-8: lone or missing continuation bytes, overlong
/// forms, surrogates, beyond U+10FFFF. nullopt if all of it is valid. Source: RFC 3629.
std::optional<int64_t> invalid_utf8(std::string_view text);

/// `text` (valid UTF-8) without white space at both ends, as Python's str.strip() sees white space.
std::string_view strip(std::string_view text);

}  // namespace ripstop
