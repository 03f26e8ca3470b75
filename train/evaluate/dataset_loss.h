#pragma once
#include <cstdint>

#include "data/dataset/batch_loader.h"
#include "data/dataset/token_dataset.h"
#include "model/core/function_ref.h"
#include "train/generate/inference_model.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// Reports progress. Called on every rank, at the start and after each part; `total`: all sequences or
/// examples.
using ReportShare = FunctionRef<void(int64_t done, int64_t total)>;

/// Computes the loss of `count` batches on each data rank and returns the sum over all ranks. next(i): this
/// rank's batch i.
using EvaluateBatches = FunctionRef<LossSum(int64_t count, NextTokens next)>;

/// The loss over the first `sequences` sequences of a data set.
struct LossSoFar {
  int64_t sequences = 0;
  bool complete = false;  ///< the data set has no more sequences
  LossSum sum;            ///< if sum.stop_requests is above 0, a stop request ended the computation early
};

/// `options` with one epoch, no shuffling, the default `open_sequences`, and the smallest steps, because a
/// stop request waits for the end of a step.
BatchLoaderOptions once_through(BatchLoaderOptions options);

/// Adds to `begin` the loss of all later sequences of `dataset`, packed by once_through(options). Every
/// target counts once. If any rank gets a stop request, ends after the current step; a later call with the
/// result as `begin` computes the rest. Equal on ranks with equal `begin`. Throws Error(kInputData) for a
/// data set without examples, and what reading throws on this rank. Collective.
LossSoFar dataset_loss(Communicator& world, const TokenDataset& dataset, BatchLoaderOptions options,
                       const LossSoFar& begin, EvaluateBatches evaluate, ReportShare report);

/// dataset_loss() for a trained model and the first `examples` of `dataset`, in sequences as long as the
/// model's context. Calls `stop_requested` on each rank once a step. Collective.
LossSoFar dataset_loss(InferenceModel& model, const TokenDataset& dataset, int64_t examples, LossOn loss_on,
                       const LossSoFar& begin, FunctionRef<bool()> stop_requested, ReportShare report);

}  // namespace ripstop
