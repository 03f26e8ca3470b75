#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset/kept_tokens.h"
#include "data/dataset/loss_on.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// The settings of a run that decide which tokens and targets it reads.
struct ExampleViewOptions {
  int64_t sequence_length = 0;  ///< 0: nothing is cut
  LossOn loss_on = LossOn::kAuto;
};

/// An example as training reads it, or a piece of a running text that is longer than a sequence.
struct ExampleView {
  int64_t example = 0;              ///< index in the data set
  int64_t piece = 0, pieces = 1;    ///< index of the piece, and number of pieces
  std::vector<int32_t> token;       ///< the kept tokens; the last one is no input
  std::vector<TokenRange> targets;  ///< indices in `token` of the targets, ascending
  std::vector<CutPlace> cuts;       ///< where tokens are missing; none for pieces of running text
  /// Number of tokens of each part before cutting. All before the separator counts as document, EOS as
  /// summary; all of a conversation, or of the piece of running text, counts as document.
  int64_t document = 0, separator = 0, summary = 0;
  int64_t cut_document = 0;  ///< tokens cut: off the document's end, in a conversation anywhere
  /// Other tokens cut: off the end of the summary, then of the separator, then of all before the document.
  int64_t cut_summary = 0;
  int64_t turns = 0;  ///< turns of a conversation before cutting; 0 for other kinds

  int64_t target_count() const;
  int64_t cut_turns() const;
};

/// Views of the given examples, cut as BatchLoader cuts them, one for each piece of running text. Throws
/// the errors of SequenceReader() and SequenceReader::read().
std::vector<ExampleView> view_examples(const TokenDataset& dataset, const std::vector<int64_t>& examples,
                                       const ExampleViewOptions& options);

/// Draws min(wanted, count) different numbers below `count` at random by `seed`. A larger `wanted` only
/// appends numbers.
std::vector<int64_t> draw_examples(int64_t count, int64_t wanted, uint64_t seed);

}  // namespace ripstop
