// The loss over a data set, for validation during training and for `evaluate`.
#pragma once
#include <cstdint>

#include "data/dataset/batch_loader.h"
#include "data/dataset/token_dataset.h"
#include "model/core/function_ref.h"
#include "train/generate/inference_model.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// Called on every rank with the amount of work done, at the start and as the work goes on.
using ReportShare = FunctionRef<void(int64_t done, int64_t total)>;

/// Computes the loss of `count` batches of this data rank, summed over the world.
using EvaluateBatches = FunctionRef<LossSum(int64_t count, NextTokens next)>;

/// The loss over the first `sequences` sequences of a data set.
struct LossSoFar {
  int64_t sequences = 0;
  bool complete = false;  ///< `sequences` are all sequences
  LossSum sum;            ///< stop_requests above 0: a stop request ended the computation early
};

/// `options` changed to one epoch in the data set's order, with the smallest steps, since a stop request
/// waits for the end of a step.
BatchLoaderOptions once_through(BatchLoaderOptions options);

/// Continues `begin` to the loss over every target of `dataset`, each counted once. Packs sequences by
/// once_through(options). If a stop is requested on any rank, ends after the current step; the result is then
/// the `begin` of a later call. Equal on all ranks. Collective. Throws Error(kInputData) on all ranks if one
/// of them cannot read the data set.
LossSoFar dataset_loss(Communicator& world, const TokenDataset& dataset, BatchLoaderOptions options,
                       const LossSoFar& begin, EvaluateBatches evaluate, ReportShare report);

/// dataset_loss of a trained model over the first `examples` of `dataset`; the sequence length is the model's
/// context. Each rank calls its `stop_requested` once a step.
LossSoFar dataset_loss(InferenceModel& model, const TokenDataset& dataset, int64_t examples, LossOn loss_on,
                       const LossSoFar& begin, FunctionRef<bool()> stop_requested, ReportShare report);

}  // namespace ripstop
