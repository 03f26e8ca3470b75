// The summaries of a data set's documents, as a model writes them on all replicas at once.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/function_ref.h"
#include "train/evaluate/dataset_loss.h"
#include "train/evaluate/predictions.h"
#include "train/generate/inference_model.h"

namespace ripstop {

/// Takes the summaries of the examples first, first + 1, ... Returns false to end the work; all ranks must
/// return the same.
using TakeSummaries = FunctionRef<bool(int64_t first, const std::vector<std::string>& summaries)>;

/// Writes summaries of the examples [begin, end) of `dataset` as `settings` say. Replicas write different
/// ones. Every rank gets all summaries, in order, a part at a time. Collective.
void write_summaries(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                     int64_t begin, int64_t end, const GenerationSettings& settings, TakeSummaries take);

/// Writes summaries of the examples [file.count(), examples) and appends them to `file` in order. `file` is
/// rank 0's, and null on the other ranks. An interruption loses the summaries since the last part: some
/// examples for every slot. Each rank asks its `stop_requested` after each part; returns false if one of them
/// said yes before the work was done. Collective.
bool write_predictions(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                       int64_t examples, const GenerationSettings& settings, PredictionFile* file,
                       FunctionRef<bool()> stop_requested, ReportShare report);

}  // namespace ripstop
