// UTF-8 as text from outside has to be: checked before anything else reads it.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace ripstop {

/// Byte at which `text` stops being valid UTF-8 (lone or missing continuation bytes, overlong forms,
/// surrogates, beyond U+10FFFF), or nothing where all of it is.
std::optional<int64_t> invalid_utf8(std::string_view text);

/// `text` (valid UTF-8) without white space at both ends, as Python's str.strip() sees white space.
std::string_view strip(std::string_view text);

}  // namespace ripstop
