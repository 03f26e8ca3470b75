// The loss over a data set: of the model in training (validation) and of a trained one (evaluate).
#pragma once
#include <cstdint>

#include "data/dataset/batch_loader.h"
#include "data/dataset/token_dataset.h"
#include "model/core/function_ref.h"
#include "train/generate/inference_model.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// Called on every rank with how much of the work is done: at the start, then as work goes on.
using ReportShare = FunctionRef<void(int64_t done, int64_t total)>;

/// Computes the loss of `count` batches of this data rank, summed over the world.
using EvaluateBatches = FunctionRef<LossSum(int64_t count, NextTokens next)>;

/// The loss over the first sequences of a data set.
struct LossSoFar {
  int64_t sequences = 0;
  bool complete = false;  ///< `sequences` are all
  LossSum sum;            ///< stop_requests above 0: a stop ended it early
};

/// `options`, but for the data set's order, each example once, and the smallest steps: a stop request waits
/// for one step.
BatchLoaderOptions once_through(BatchLoaderOptions options);

/// The loss over every target of `dataset`, each counted once, after those of `begin`. Sequences are packed
/// by `options`, but in the data set's order, one epoch, and with steps of one batch a rank. If a stop was
/// requested on any rank, it ends after the step under way; what it returns is the `begin` to go on from.
/// Equal on all ranks. Collective. Throws Error(kInputData) on all ranks if one of them cannot read the data
/// set.
LossSoFar dataset_loss(Communicator& world, const TokenDataset& dataset, BatchLoaderOptions options,
                       const LossSoFar& begin, EvaluateBatches evaluate, ReportShare report);

/// The loss of a trained model over the first `examples` of `dataset`, with `loss_on` and the model's context
/// as the sequence length. Each rank asks its `stop_requested` once a step.
LossSoFar dataset_loss(InferenceModel& model, const TokenDataset& dataset, int64_t examples, LossOn loss_on,
                       const LossSoFar& begin, FunctionRef<bool()> stop_requested, ReportShare report);

}  // namespace ripstop
