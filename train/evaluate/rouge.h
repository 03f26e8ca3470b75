// ROUGE-1, ROUGE-2 and ROUGE-L: how much of a reference summary a candidate repeats.
// How to add another score: CONTRIBUTING.md, "Add anything else".
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ripstop {

/// Numbers from 0 to 1. The units are words or pairs of words; a hit is a unit that both texts have.
struct RougeScore {
  double precision = 0;  ///< hits / units of the candidate
  double recall = 0;     ///< hits / units of the reference
  double fmeasure = 0;   ///< harmonic mean of precision and recall; 0 without hits
};

/// The scores of a candidate, or means of scores.
struct RougeScores {
  RougeScore rouge1;  ///< units: words; hits of a word: the smaller of its counts in the two texts
  RougeScore rouge2;  ///< units: pairs of neighbouring words, with hits counted as for rouge1
  /// Units: words; the hits are the longest common subsequence of words, with each text as one sentence.
  RougeScore rouge_l;
  bool has_words = true;  ///< whether the reference has a word (rouge_words); always true in a mean
};

/// The scores under the names that files and tables use: rouge1, rouge2, rougeL.
std::array<std::pair<const char*, RougeScore>, 3> named(const RougeScores& scores);

/// A table of the scores (0..1) for people, in four lines.
std::string rouge_table(const RougeScores& scores);

/// The words that ROUGE compares: runs of a-z and 0-9 in lower case, with porter_stem for words of more than
/// three characters. `text` is UTF-8. All else separates words, except the Kelvin sign and the dotted capital
/// I, whose lower case begins with an English letter, as in Google's rouge-score. Without `stems`, words stay
/// whole.
std::vector<std::string> rouge_words(std::string_view text, bool stems = true);

/// Equals RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stems).score(reference, candidate) of
/// Google's rouge-score 0.1.2. Time grows with the product of the two numbers of words, memory with their
/// sum. Source: C.-Y. Lin, ROUGE: A Package for Automatic Evaluation of Summaries, 2004, sections 2 and 3.1.
RougeScores rouge(std::string_view reference, std::string_view candidate, bool stems = true);

/// Means over examples. Equal calls of add() in the same order give the same bits.
class RougeMean {
 public:
  /// `weight`: the weight of `scores` in the mean.
  void add(const RougeScores& scores, double weight = 1);
  int64_t examples() const { return examples_; }
  /// The means; all zero if add() was never called.
  RougeScores mean() const;
  /// A note for people: how many references have no word, and so score 0; "" if all have words.
  std::string note() const;

 private:
  RougeScores sum_;
  double weights_ = 0;
  int64_t examples_ = 0, wordless_ = 0;
};

}  // namespace ripstop
