#include "train/evaluate/degenerate.h"

#include <fmt/core.h>

#include <set>
#include <span>
#include <vector>

#include "data/text/utf8.h"

namespace ripstop {
namespace {

using WordSpan = std::span<const std::string_view>;

constexpr size_t kFew = 4;
constexpr std::string_view kWhite = " \t\r\n";

bool repeats(WordSpan words) {
  std::set<std::vector<std::string_view>> seen;
  for (size_t i = 0; i + kFew <= words.size(); ++i)
    if (!seen.emplace(words.begin() + static_cast<ptrdiff_t>(i),
                      words.begin() + static_cast<ptrdiff_t>(i + kFew))
             .second)
      return true;
  return false;
}

bool copies(std::string_view document, WordSpan summary) {
  const std::vector<std::string_view> words = words_in(document, kWhite);
  const auto ends = [&](std::string_view word) {
    const auto end = static_cast<size_t>(word.data() + word.size() - document.data());
    const size_t behind = document.find_first_not_of(" \t\r", end);
    return word.find_last_of(".!?") + 1 == word.size() || behind == document.npos || document[behind] == '\n';
  };
  for (size_t i = 0; i < words.size() && i < summary.size() && words[i] == summary[i]; ++i)
    if (i + 1 >= kFew && ends(words[i])) return true;
  return false;
}

}  // namespace

Degenerate find_degenerate(const Prediction& prediction) {
  const std::vector<std::string_view> words = words_in(prediction.summary, kWhite);
  return {prediction.at_limit, words.empty(), repeats(words), copies(prediction.document, words)};
}

void DegenerateCounts::add(const Degenerate& signs) {
  at_limit += signs.at_limit ? 1 : 0;
  empty += signs.empty ? 1 : 0;
  repeats += signs.repeats ? 1 : 0;
  copies += signs.copies ? 1 : 0;
}

std::string to_text(const DegenerateCounts& counts) {
  return fmt::format(
      "summaries that ended at max_new_tokens: {}; empty: {}; with four words twice: {}; that begin with the "
      "document's first sentence: {}\n",
      counts.at_limit, counts.empty, counts.repeats, counts.copies);
}

}  // namespace ripstop
