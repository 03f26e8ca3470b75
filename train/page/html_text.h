// Texts in an HTML page. Texts from files may be hostile: none may become markup, or reorder other text.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ripstop {

/// `text` for an element or a quoted attribute: markup is escaped; bytes that are not UTF-8 and control
/// characters, except line ends and tabs, become U+FFFD; marks that change the direction of text become names
/// such as "[U+202E]". A text of more than `most` characters is cut, and says how many characters it lost.
std::string html(std::string_view text, size_t most = 300);

/// `summary` as html(), with <mark> around the words that it shares with `reference` in the same order (the
/// longest common subsequence). Words are compared by rouge_words(), in the first `most` characters.
std::string html_marked(std::string_view summary, std::string_view reference, size_t most);

}  // namespace ripstop
