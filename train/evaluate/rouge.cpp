#include "train/evaluate/rouge.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "train/evaluate/porter_stemmer.h"

namespace ripstop {
namespace {

// As Google's rouge_score: words of up to three letters are not stemmed.
constexpr size_t kLongestUnstemmed = 3;

using WordIds = std::vector<uint32_t>;

// The words of both texts as small numbers, equal for equal words: numbers are faster to compare than
// strings.
struct NumberedTexts {
  WordIds reference;
  WordIds candidate;
  uint32_t distinct = 0;
};

// One map for both texts: only then are the numbers comparable.
NumberedTexts number_words(const std::vector<std::string>& reference,
                           const std::vector<std::string>& candidate) {
  std::unordered_map<std::string_view, uint32_t> ids;
  const auto number = [&](const std::vector<std::string>& words) {
    WordIds numbered;
    numbered.reserve(words.size());
    for (const std::string& word : words)
      numbered.push_back(ids.try_emplace(word, static_cast<uint32_t>(ids.size())).first->second);
    return numbered;
  };
  NumberedTexts texts;
  texts.reference = number(reference);
  texts.candidate = number(candidate);
  texts.distinct = static_cast<uint32_t>(ids.size());
  return texts;
}

RougeScore score(int64_t hits, int64_t in_reference, int64_t in_candidate) {
  // Also for empty texts, which would divide by zero.
  if (hits == 0) return {};
  const double precision = static_cast<double>(hits) / static_cast<double>(in_candidate);
  const double recall = static_cast<double>(hits) / static_cast<double>(in_reference);
  return {precision, recall, 2 * precision * recall / (precision + recall)};
}

// Pairs of words as one number, sorted: two sorted lists are matched in one pass.
std::vector<uint64_t> sorted_ngrams(const WordIds& words, size_t n) {
  std::vector<uint64_t> ngrams;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ngrams.push_back(n == 1 ? words[i] : uint64_t{words[i]} << 32 | words[i + 1]);
  std::sort(ngrams.begin(), ngrams.end());
  return ngrams;
}

RougeScore score_ngrams(const NumberedTexts& texts, size_t n) {
  const std::vector<uint64_t> reference = sorted_ngrams(texts.reference, n);
  const std::vector<uint64_t> candidate = sorted_ngrams(texts.candidate, n);
  int64_t hits = 0;
  for (size_t i = 0, j = 0; i < reference.size() && j < candidate.size();) {
    // An n-gram counts as often as it is in both texts: each match uses up one on either side.
    if (reference[i] == candidate[j]) ++hits;
    const bool next_reference = reference[i] <= candidate[j];
    if (candidate[j] <= reference[i]) ++j;
    if (next_reference) ++i;
  }
  return score(hits, std::ssize(reference), std::ssize(candidate));
}

// The textbook table has one row for each word of the candidate. Neighbours in a row differ by 0 or 1, so one
// integer holds 64 columns (bit = no step), and one addition makes a row from the row before. The table is
// computed in bands of 64 columns, each over all rows. The carry of a row in one band goes into the same row
// of the next band. Source: H. Hyyro, Bit-parallel LCS-length computation revisited, 2004.
int64_t longest_common_subsequence(const NumberedTexts& texts) {
  const WordIds& reference = texts.reference;
  std::vector<uint64_t> places(texts.distinct, 0);
  std::vector<bool> carries(texts.candidate.size(), false);
  int64_t length = 0;
  for (size_t begin = 0; begin < reference.size(); begin += 64) {
    const size_t columns = std::min<size_t>(64, reference.size() - begin);
    for (size_t c = 0; c < columns; ++c) places[reference[begin + c]] |= uint64_t{1} << c;
    uint64_t flat = ~uint64_t{0};
    for (size_t row = 0; row < texts.candidate.size(); ++row) {
      const uint64_t matches = flat & places[texts.candidate[row]];
      const uint64_t half = flat + matches;
      const uint64_t sum = half + (carries[row] ? 1 : 0);
      carries[row] = half < flat || sum < half;
      flat = sum | (flat - matches);
    }
    for (size_t c = 0; c < columns; ++c) {
      length += ~flat >> c & 1;
      places[reference[begin + c]] = 0;
    }
  }
  return length;
}

std::array<RougeScore*, 3> members(RougeScores& scores) {
  return {&scores.rouge1, &scores.rouge2, &scores.rouge_l};
}

}  // namespace

std::array<NamedRougeScore, 3> named(const RougeScores& scores) {
  return {{{"rouge1", scores.rouge1}, {"rouge2", scores.rouge2}, {"rougeL", scores.rouge_l}}};
}

std::string rouge_table(const RougeScores& scores) {
  std::string table = fmt::format("{:<8}{:>10}{:>10}{:>10}\n", "", "precision", "recall", "fmeasure");
  for (const auto& [name, score] : named(scores))
    table += fmt::format("{:<8}{:>10.4f}{:>10.4f}{:>10.4f}\n", name, score.precision, score.recall,
                         score.fmeasure);
  return table;
}

std::vector<std::string> rouge_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(word.size() > kLongestUnstemmed ? porter_stem(word) : word);
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

RougeScores rouge(std::string_view reference, std::string_view candidate) {
  const std::vector<std::string> reference_words = rouge_words(reference);
  const std::vector<std::string> candidate_words = rouge_words(candidate);
  const NumberedTexts texts = number_words(reference_words, candidate_words);
  return {score_ngrams(texts, 1), score_ngrams(texts, 2),
          score(longest_common_subsequence(texts), std::ssize(texts.reference), std::ssize(texts.candidate))};
}

void RougeMean::add(const RougeScores& scores) {
  RougeScores copy = scores;
  const auto sums = members(sum_);
  const auto terms = members(copy);
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i]->precision += terms[i]->precision;
    sums[i]->recall += terms[i]->recall;
    sums[i]->fmeasure += terms[i]->fmeasure;
  }
  ++examples_;
}

RougeScores RougeMean::mean() const {
  RougeScores result = sum_;
  for (RougeScore* score : members(result)) {
    const double count = static_cast<double>(std::max<int64_t>(examples_, 1));
    *score = {score->precision / count, score->recall / count, score->fmeasure / count};
  }
  return result;
}

}  // namespace ripstop
