#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/loss_on.h"
#include "data/dataset/token_dataset.h"
#include "train/evaluate/degenerate.h"
#include "train/evaluate/rouge.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// Numbers of documents, turns and references that were cut to fit into the context.
struct CutCounts {
  /// Documents that were cut to fit into the context with their reference.
  int64_t loss_documents = 0;
  int64_t loss_turns = 0;      ///< turns that conversations lost for the same reason
  int64_t loss_summaries = 0;  ///< documents of `loss_documents` whose reference lost its end, too
  /// Documents that were cut to leave room for max_new_tokens; nullopt if no summaries are generated.
  std::optional<int64_t> rouge_documents = {};
};

/// Counts cuts in the first `examples` of `dataset`. `max_new_tokens` is 0 if no summaries are generated.
/// Reads no token.
CutCounts count_cuts(const TokenDataset& dataset, int64_t examples, LossOn loss_on, int64_t context,
                     int64_t max_new_tokens);

/// A line for people: "documents cut to fit 256 tokens: loss 12 of 98 ..." without a line end; "" if nothing
/// is cut.
std::string cuts_text(const CutCounts& cuts, int64_t examples, int64_t context, int64_t max_new_tokens);

/// The results over the first `examples` of a split.
struct EvaluationScores {
  int64_t step = 0;        ///< the step of the checkpoint
  std::string checkpoint;  ///< the checkpoint's directory
  std::string split;
  std::string data = {};                    ///< the directory of the split's data set
  std::vector<std::string> data_sets = {};  ///< data sets of the run; empty if it has one
  int64_t examples = 0;
  int64_t split_examples = 0;  ///< number of all examples of the split
  LossSum loss = {};
  RougeMean rouge = {};       ///< mean over all examples; over no examples if no summaries were scored
  std::string no_rouge = {};  ///< why `rouge` is over no examples
  CutCounts cuts = {};
  DegenerateCounts degenerate = {};  ///< counts over the examples that `rouge` covers

  /// The mean loss of a target, in nats; NaN if there are no targets.
  double mean_loss() const;
};

/// Adds ROUGE and signs of degenerate texts of `predictions` to `scores`. Returns the text of scores.jsonl.
std::string score_predictions(std::span<const Prediction> predictions, EvaluationScores& scores);

/// The text of scores.json and of evaluate --json, with a line end. Scripts rely on its keys. A number that
/// is not finite becomes null.
std::string to_json(const EvaluationScores& scores);

/// The scores as lines for people.
std::string to_text(const EvaluationScores& scores);

}  // namespace ripstop
