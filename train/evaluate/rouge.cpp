#include "train/evaluate/rouge.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "train/evaluate/porter_stemmer.h"

namespace ripstop {
namespace {

// Google's rouge-score does not stem words up to this length.
constexpr size_t kLongestUnstemmed = 3;

using Words = std::vector<std::string>;

RougeScore score(int64_t hits, int64_t in_reference, int64_t in_candidate) {
  // Avoids a division by zero, also for empty texts.
  if (hits == 0) return {};
  const double precision = static_cast<double>(hits) / static_cast<double>(in_candidate);
  const double recall = static_cast<double>(hits) / static_cast<double>(in_reference);
  return {precision, recall, 2 * precision * recall / (precision + recall)};
}

Words sorted_ngrams(const Words& words, size_t n) {
  Words ngrams;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ngrams.push_back(fmt::format("{}", fmt::join(words.begin() + static_cast<ptrdiff_t>(i),
                                                 words.begin() + static_cast<ptrdiff_t>(i + n), " ")));
  std::sort(ngrams.begin(), ngrams.end());
  return ngrams;
}

RougeScore score_ngrams(const Words& reference, const Words& candidate, size_t n) {
  const Words in_reference = sorted_ngrams(reference, n), in_candidate = sorted_ngrams(candidate, n);
  // An n-gram with x occurrences in one text and y in the other counts min(x, y) times.
  Words hits;
  std::set_intersection(in_reference.begin(), in_reference.end(), in_candidate.begin(), in_candidate.end(),
                        std::back_inserter(hits));
  return score(std::ssize(hits), std::ssize(in_reference), std::ssize(in_candidate));
}

// Dynamic programming with one row of the table.
int64_t longest_common_subsequence(const Words& reference, const Words& candidate) {
  std::vector<int64_t> row(reference.size() + 1, 0);
  for (const std::string& word : candidate) {
    int64_t diagonal = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      const int64_t above = row[i + 1];
      row[i + 1] = word == reference[i] ? diagonal + 1 : std::max(above, row[i]);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::array<std::pair<const char*, RougeScore>, 3> named(const RougeScores& scores) {
  return {{{"rouge1", scores.rouge1}, {"rouge2", scores.rouge2}, {"rougeL", scores.rouge_l}}};
}

std::string rouge_table(const RougeScores& scores) {
  std::string table = fmt::format("{:<8}{:>10}{:>10}{:>10}\n", "", "precision", "recall", "fmeasure");
  for (const auto& [name, score] : named(scores))
    table += fmt::format("{:<8}{:>10.4f}{:>10.4f}{:>10.4f}\n", name, score.precision, score.recall,
                         score.fmeasure);
  return table;
}

std::vector<std::string> rouge_words(std::string_view text, bool stems) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(stems && word.size() > kLongestUnstemmed ? porter_stem(word) : word);
    word.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
    } else if (c >= 'A' && c <= 'Z') {
      word += static_cast<char>(c - 'A' + 'a');
    } else if (text.substr(i, 3) == "\u212A") {  // Kelvin sign: its lower case is k
      word += 'k';
      i += 2;
    } else if (text.substr(i, 2) == "\u0130") {  // dotted capital I: its lower case is i and a combining dot
      word += 'i';
      end_word();
      ++i;
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

RougeScores rouge(std::string_view reference, std::string_view candidate, bool stems) {
  const Words in_reference = rouge_words(reference, stems), in_candidate = rouge_words(candidate, stems);
  return {score_ngrams(in_reference, in_candidate, 1), score_ngrams(in_reference, in_candidate, 2),
          score(longest_common_subsequence(in_reference, in_candidate), std::ssize(in_reference),
                std::ssize(in_candidate)),
          !in_reference.empty()};
}

void RougeMean::add(const RougeScores& scores, double weight) {
  const auto plus = [&](const RougeScore& a, const RougeScore& b) -> RougeScore {
    return {a.precision + weight * b.precision, a.recall + weight * b.recall,
            a.fmeasure + weight * b.fmeasure};
  };
  sum_ = {plus(sum_.rouge1, scores.rouge1), plus(sum_.rouge2, scores.rouge2),
          plus(sum_.rouge_l, scores.rouge_l)};
  ++examples_;
  weights_ += weight;
  wordless_ += scores.has_words ? 0 : 1;
}

std::string RougeMean::note() const {
  if (wordless_ == 0) return "";
  return fmt::format(
      "{} of {} references have no letter from a to z and no digit: ROUGE counts no others, as Google's "
      "rouge_score, so each of them scores 0",
      wordless_, examples_);
}

RougeScores RougeMean::mean() const {
  const double count = examples_ > 0 ? weights_ : 1;
  const auto mean = [&](const RougeScore& sum) -> RougeScore {
    return {sum.precision / count, sum.recall / count, sum.fmeasure / count};
  };
  return {mean(sum_.rouge1), mean(sum_.rouge2), mean(sum_.rouge_l)};
}

}  // namespace ripstop
