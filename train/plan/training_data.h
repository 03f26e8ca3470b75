// The data of a run: the sequences that a rank gets, the form in which the model gets them, the number of steps.
#pragma once
#include <cstdint>

#include "data/batch_loader.h"
#include "model/batch.h"
#include "parallel/device_mesh.h"
#include "train/plan/resolved_run.h"

namespace ripstop {

/// What the loader of this rank's training data needs to know.
BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh);

/// The optimizer steps of the whole run: train.steps, or as many as train.epochs epochs come to (sequences differ
/// from epoch to epoch, as each is packed in its own order).
int64_t count_steps(const TokenDataset& dataset, const RunConfig& config, const BatchLoaderOptions& options);

}  // namespace ripstop
