// ExampleView: what training sees of an example, for people who want to look at it.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset/loss_on.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// How a run would read a data set.
struct ExampleViewOptions {
  int64_t sequence_length = 0;  ///< 0: nothing is cut
  LossOn loss_on = LossOn::kSummary;
};

/// One document as the loader deals it: an example, or a piece of running text that is longer than a
/// sequence.
struct ExampleView {
  int64_t example = 0;            ///< index in the data set
  int64_t piece = 0, pieces = 1;  ///< of running text
  std::vector<int32_t> token;     ///< tokens that are read, and behind them the last target
  int64_t first_target = 0;       ///< index in `token` of the first one whose prediction counts
  /// Tokens of each part as the data set stores them: BOS belongs to the document, EOS to the summary. A
  /// piece of running text is all document.
  int64_t document = 0, separator = 0, summary = 0;
  int64_t cut_document = 0;  ///< tokens that are missing at the document's end
  int64_t cut_summary = 0;   ///< at the summary's end; at the separator's too if a sequence holds less

  /// Index in `token` at which the tokens of the document that were cut are missing.
  int64_t document_end() const { return document - cut_document; }
  /// Tokens whose prediction counts.
  int64_t targets() const { return static_cast<int64_t>(token.size()) - first_target; }
};

/// Views of `examples` of `dataset` as training sees them, one after the other; running text as all of its
/// pieces. Cut by SequenceReader and PackPlan, as BatchLoader has it. Throws Error(kInputData) for a data set
/// without examples, and what TokenDataset::read_tokens throws.
std::vector<ExampleView> view_examples(const TokenDataset& dataset, const std::vector<int64_t>& examples,
                                       const ExampleViewOptions& options);

/// Which of the `count` examples of a data set to look at: `wanted` that `seed` draws at random, none twice;
/// more of the same seed begin with the same. All if there are no more.
std::vector<int64_t> draw_examples(int64_t count, int64_t wanted, uint64_t seed);

}  // namespace ripstop
