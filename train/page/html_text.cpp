#include "train/page/html_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/text/utf8.h"
#include "train/evaluate/rouge.h"

namespace ripstop {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool turns_text(uint32_t letter) {
  return letter == 0x61c || letter == 0x200e || letter == 0x200f || (letter >= 0x202a && letter <= 0x202e) ||
         (letter >= 0x2066 && letter <= 0x2069);
}

void add_letter(std::string& out, std::string_view sequence) {
  const uint32_t letter = code_point(sequence);
  if (turns_text(letter))
    out += fmt::format("[U+{:04X}]", letter);
  else if ((letter < ' ' && letter != '\n' && letter != '\t') || (letter >= 0x7f && letter < 0xa0))
    out += kReplacement;
  else if (letter == '&' || letter == '<' || letter == '>' || letter == '"' || letter == '\'')
    out += fmt::format("&#{};", letter);
  else
    out += sequence;
}

// The number of bytes in the first `most` characters; a byte that is not UTF-8 counts as a character.
size_t bytes_of(std::string_view text, size_t most) {
  size_t at = 0;
  for (size_t n = 0; n < most && at < text.size(); ++n)
    at += std::max<size_t>(sequence_bytes(text.substr(at)), 1);
  return at;
}

size_t letters_in(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return (byte & 0xc0) != 0x80; }));
}

struct Word {
  std::string_view text;
  std::string compared;  ///< rouge_words() of the text
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (const std::string_view word : words_in(text, " \n\t\r"))
    words.push_back({word, fmt::format("{}", fmt::join(rouge_words(word), " "))});
  return words;
}

// For each of `words`, whether it is in a longest common subsequence of `words` and `others`.
std::vector<bool> common_words(const std::vector<Word>& words, const std::vector<Word>& others) {
  const size_t rows = words.size(), columns = others.size();
  std::vector<uint32_t> longest((rows + 1) * (columns + 1));  // length for words[row..] and others[column..]
  const auto at = [&](size_t row, size_t column) -> uint32_t& {
    return longest[row * (columns + 1) + column];
  };
  const auto equal = [&](size_t row, size_t column) {
    return !words[row].compared.empty() && words[row].compared == others[column].compared;
  };
  for (size_t row = rows; row-- > 0;)
    for (size_t column = columns; column-- > 0;)
      at(row, column) = equal(row, column) ? at(row + 1, column + 1) + 1
                                           : std::max(at(row + 1, column), at(row, column + 1));
  std::vector<bool> common(rows);
  for (size_t row = 0, column = 0; row < rows && column < columns;) {
    if (equal(row, column))
      common[row++] = true, ++column;
    else
      at(row + 1, column) >= at(row, column + 1) ? ++row : ++column;
  }
  return common;
}

}  // namespace

std::string html(std::string_view text, size_t most) {
  const std::string_view shown = text.substr(0, bytes_of(text, most));
  std::string out;
  for (size_t at = 0; at < shown.size();) {
    const size_t bytes = sequence_bytes(shown.substr(at));
    if (bytes == 0)
      out += kReplacement;
    else
      add_letter(out, shown.substr(at, bytes));
    at += std::max<size_t>(bytes, 1);
  }
  if (shown.size() < text.size())
    out += fmt::format(" … (cut: {} characters more)", letters_in(text.substr(shown.size())));
  return out;
}

std::string html_marked(std::string_view summary, std::string_view reference, size_t most) {
  const std::vector<Word> words = words_of(summary.substr(0, bytes_of(summary, most)));
  const std::vector<bool> common =
      common_words(words, words_of(reference.substr(0, bytes_of(reference, most))));
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool goes_on = i > 0 && common[i - 1];
    if (goes_on && !common[i]) out += "</mark>";
    if (i > 0) out += ' ';
    if (!goes_on && common[i]) out += "<mark>";
    out += html(words[i].text, most);
  }
  if (!words.empty() && common.back()) out += "</mark>";
  if (const size_t shown = bytes_of(summary, most); shown < summary.size())
    out += fmt::format(" … (cut: {} characters more)", letters_in(summary.substr(shown)));
  return out;
}

}  // namespace ripstop
