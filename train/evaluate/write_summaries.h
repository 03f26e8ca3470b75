#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/function_ref.h"
#include "train/evaluate/dataset_loss.h"
#include "train/evaluate/predictions.h"
#include "train/generate/inference_model.h"
#include "train/generate/write_texts.h"

namespace ripstop {

/// Called with the summaries of the examples first, first + 1, ...
using TakeSummaries = FunctionRef<void(int64_t first, const std::vector<WrittenText>& summaries)>;

/// Generates summaries of the examples [begin, end) of `dataset`, a share on each replica. Calls `take` on
/// every rank with all summaries, in order, a part at a time, and `stop_requested` after each part. Ends, and
/// returns false, after a part in which a stop was requested on any rank. Collective.
bool write_summaries(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                     int64_t begin, int64_t end, const GenerationSettings& settings, TakeSummaries take,
                     FunctionRef<bool()> stop_requested);

/// Generates summaries of the examples [file.count(), examples) and appends them to `file`, which is null on
/// all ranks but rank 0. An interruption loses the current part, a few examples for each slot. Returns false
/// if a stop was requested on any rank and examples are left. Collective.
bool write_predictions(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                       int64_t examples, const GenerationSettings& settings, PredictionFile* file,
                       FunctionRef<bool()> stop_requested, ReportShare report);

}  // namespace ripstop
