// ROUGE-1, ROUGE-2 and ROUGE-L: how much of a reference summary a candidate repeats.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// All in 0..1.
struct RougeScore {
  double precision = 0;  ///< hits / what the candidate has
  double recall = 0;     ///< hits / what the reference has
  double fmeasure = 0;   ///< harmonic mean of the two, 0 where there is no hit
};

struct RougeScores {
  RougeScore rouge1;   ///< single words, each counted as often as both sides have it
  RougeScore rouge2;   ///< pairs of neighbouring words
  RougeScore rouge_l;  ///< the longest common subsequence of words, the text taken as one sentence
};

/// The three under the names that files and tables use: rouge1, rouge2, rougeL.
struct NamedRougeScore {
  const char* name;
  RougeScore score;
};
std::array<NamedRougeScore, 3> named(const RougeScores& scores);

/// The scores, 0..1 as everywhere in ripstop, as a table for people of four lines.
std::string rouge_table(const RougeScores& scores);

/// The words that ROUGE compares: lower case, anything but a-z and 0-9 is a gap, words of more than three
/// letters replaced by `porter_stem`. `text` is UTF-8; other letters are gaps as well, but for the two
/// characters whose lower case begins with an English letter (the Kelvin sign and the dotted capital I), as
/// in Google's rouge-score.
std::vector<std::string> rouge_words(std::string_view text);

/// The scores of one candidate against one reference. Equals RougeScorer(["rouge1", "rouge2", "rougeL"],
/// use_stemmer=True).score(reference, candidate) of Google's rouge-score 0.1.2. Time grows with the product
/// of the numbers of words divided by 64, memory with their sum. Source: C.-Y. Lin, ROUGE: A Package for
/// Automatic Evaluation of Summaries, 2004, sections 2 and 3.1.
RougeScores rouge(std::string_view reference, std::string_view candidate);

/// Means over examples. Sums run in the order of the calls, so the same order gives the same bits.
class RougeMean {
 public:
  void add(const RougeScores& scores);
  int64_t examples() const { return examples_; }
  /// All zero where nothing was added.
  RougeScores mean() const;

 private:
  RougeScores sum_;
  int64_t examples_ = 0;
};

}  // namespace ripstop
