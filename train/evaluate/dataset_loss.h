// The loss over a data set: of the model in training (validation) and of a trained one (evaluate).
#pragma once
#include <cstdint>

#include "data/batch_loader.h"
#include "data/token_dataset.h"
#include "model/core/function_ref.h"
#include "train/generate/inference_model.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// Called on every rank with how much of the work is done: at the start, then as work goes on.
using ReportShare = FunctionRef<void(int64_t done, int64_t total)>;

/// Computes the loss of `count` batches of this data rank, summed over the world.
using EvaluateBatches = FunctionRef<LossSum(int64_t count, NextTokens next)>;

/// How often the ranks sum their losses. A stop request is noticed only there.
enum class SumLosses : bool { kOnce, kEveryStep };

/// `options`, but for the data set's order, each example once, and the smallest steps: a stop request waits
/// for one step.
BatchLoaderOptions once_through(BatchLoaderOptions options);

/// The loss over every target of `dataset`, each counted once. Sequences are packed by `options`, but in the
/// data set's order, one epoch, and with steps of one batch a rank. If a stop was requested on any rank, the
/// sum ends early and says so in stop_requests. Equal on all ranks. Collective. Throws Error(kInputData) on
/// all ranks if one of them cannot read the data set.
LossSum dataset_loss(Communicator& world, const TokenDataset& dataset, BatchLoaderOptions options,
                     SumLosses sum_losses, EvaluateBatches evaluate, ReportShare report);

/// The same by a trained model over the first `examples` of `dataset`, with `loss_on` and the model's context
/// as the sequence length. Nobody can stop it.
LossSum dataset_loss(InferenceModel& model, const TokenDataset& dataset, int64_t examples, LossOn loss_on,
                     ReportShare report);

}  // namespace ripstop
