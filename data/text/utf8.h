// Checks UTF-8 from outside, and strips white space.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ripstop {

/// Length of the valid UTF-8 sequence at the begin of `text`; 0 if it is invalid.
size_t sequence_bytes(std::string_view text);

/// The Unicode code point of a valid UTF-8 sequence.
uint32_t code_point(std::string_view sequence);

/// Index of the first byte at which `text` is not valid UTF-8; nullopt if all of it is valid. Continuation
/// bytes that are alone or missing, overlong forms, surrogates and code points beyond U+10FFFF are invalid.
/// Source: RFC 3629.
std::optional<int64_t> invalid_utf8(std::string_view text);

/// `text` (valid UTF-8) without the white space at both ends that Python's str.strip() removes.
std::string_view strip(std::string_view text);

}  // namespace ripstop
