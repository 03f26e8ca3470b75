// What evaluate measures on a split: the loss of the written summaries, and the summaries that the model
// writes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/batch_loader.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "model/core/function_ref.h"
#include "train/evaluate/predictions.h"
#include "train/generate/inference_model.h"

namespace ripstop {

struct SplitLoss {
  double sum = 0;            ///< of the losses of all targets
  int64_t target_count = 0;  ///< tokens whose prediction counts
  double mean() const { return target_count > 0 ? sum / static_cast<double>(target_count) : 0; }
};

/// So much of so much is done: at the start, then as work goes on. Called on every rank.
using ReportShare = FunctionRef<void(int64_t done, int64_t total)>;

/// The loss over every target of `dataset`, each counted once, packed as in training. Collective; equal on
/// all ranks.
SplitLoss split_loss(InferenceModel& model, const TokenDataset& dataset, LossOn loss_on, ReportShare report);

/// The summaries of the examples first, first + 1, ...; false where that is enough, on all ranks alike.
using TakeSummaries = FunctionRef<bool(int64_t first, const std::vector<std::string>& summaries)>;

/// Writes summaries of the examples [begin, end) of `dataset`; replicas write different ones. Hands them over
/// in order, a part at a time, on every rank. Collective.
void write_summaries(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                     int64_t begin, int64_t end, int64_t max_new_tokens, TakeSummaries take);

/// Writes summaries of the examples [file.count(), examples) and appends them to `file` in order.
/// Collective; `file` is rank 0's and null elsewhere. An interruption loses some
/// examples a slot.
void write_predictions(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                       int64_t examples, int64_t max_new_tokens, PredictionFile* file, ReportShare report);

}  // namespace ripstop
