// The figures of an evaluation, as scores.json and as text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/dataset/loss_on.h"
#include "data/dataset/token_dataset.h"
#include "train/evaluate/rouge.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// Documents that lost their end, because they did not fit into the context as they are.
struct CutCounts {
  int64_t loss_documents = 0;  ///< document and reference are longer than the context
  int64_t loss_summaries = 0;  ///< the part of them whose reference lost its end, too
  std::optional<int64_t> rouge_documents =
      {};  ///< document and new tokens are longer; nullopt without summaries
};

/// Counts them among the first `examples` of `dataset`. `max_new_tokens` 0: no summaries are written. Reads
/// no token.
CutCounts count_cuts(const TokenDataset& dataset, int64_t examples, LossOn loss_on, int64_t context,
                     int64_t max_new_tokens);

/// "documents cut to fit 256 tokens: loss 12 of 98 ..." on one line, without a line end; "" if none is cut.
std::string cuts_text(const CutCounts& cuts, int64_t examples, int64_t context, int64_t max_new_tokens);

/// All figures are over the same examples: the first `examples` of the split.
struct EvaluationScores {
  int64_t step = 0;        ///< of the checkpoint
  std::string checkpoint;  ///< directory of the checkpoint
  std::string split;
  int64_t examples = 0;
  int64_t split_examples = 0;  ///< examples of the whole split
  LossSum loss = {};
  RougeMean rouge = {};       ///< of no example, or of all
  std::string no_rouge = {};  ///< why it is of none
  CutCounts cuts = {};

  /// Nats, mean over the targets; not a number if there are none.
  double mean_loss() const;
};

/// scores.json, and the output of evaluate --json, with a line end. Its keys are a contract with people's
/// scripts. A number that is not finite becomes null.
std::string to_json(const EvaluationScores& scores);

/// The scores for people, some lines.
std::string to_text(const EvaluationScores& scores);

}  // namespace ripstop
