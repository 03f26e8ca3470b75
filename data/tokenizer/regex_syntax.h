#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// Translates `pattern` from Oniguruma's Ruby syntax, which `tokenizers` uses, to the syntax of PCRE2. Throws
/// Error(kInputData) for a construct that is not known to match the same texts in both. Source: Oniguruma's
/// doc/RE, pcre2pattern(3).
std::string pcre2_syntax(std::string_view pattern);

/// Unicode's White_Space as ranges of a PCRE2 class. PCRE2's own \s also matches U+180E.
inline constexpr std::string_view kSpaceRanges =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// Word characters as in the library `regex` of Rust, for the inside of a PCRE2 class.
inline constexpr std::string_view kWordSets = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";

}  // namespace ripstop
