// The loss over a data set, for validation during training and for `evaluate`.
#pragma once
#include <cstdint>

#include "data/dataset/batch_loader.h"
#include "data/dataset/token_dataset.h"
#include "model/core/function_ref.h"
#include "train/generate/inference_model.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// Called on every rank, at the start and after each part of the work: `done` of `total` sequences or
/// examples are done.
using ReportShare = FunctionRef<void(int64_t done, int64_t total)>;

/// Computes the loss of `count` batches on each data rank and returns the sum over all ranks. next(i) returns
/// batch i of this rank.
using EvaluateBatches = FunctionRef<LossSum(int64_t count, NextTokens next)>;

/// The loss over the first `sequences` sequences of a data set.
struct LossSoFar {
  int64_t sequences = 0;
  bool complete = false;  ///< `sequences` is the number of all sequences of the data set
  LossSum sum;  ///< the loss; if sum.stop_requests is above 0, a stop request ended the computation early
};

/// Returns `options` with one epoch, no shuffling, and the smallest possible steps, since a stop request
/// waits for the end of a step.
BatchLoaderOptions once_through(BatchLoaderOptions options);

/// Adds to `begin` the loss of all later sequences of `dataset`, and returns the sum, which is equal on all
/// ranks. Counts every target once. Packs sequences by once_through(options). If a stop is requested on any
/// rank, ends after the current step; a later call that gets the result as `begin` computes the rest.
/// Collective. Throws Error(kInputData) on all ranks if one of them cannot read the data set.
LossSoFar dataset_loss(Communicator& world, const TokenDataset& dataset, BatchLoaderOptions options,
                       const LossSoFar& begin, EvaluateBatches evaluate, ReportShare report);

/// Calls dataset_loss() above for a trained model and the first `examples` of `dataset`, with the model's
/// context as the sequence length. Calls `stop_requested` on each rank once a step.
LossSoFar dataset_loss(InferenceModel& model, const TokenDataset& dataset, int64_t examples, LossOn loss_on,
                       const LossSoFar& begin, FunctionRef<bool()> stop_requested, ReportShare report);

}  // namespace ripstop
