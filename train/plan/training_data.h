// The data of a run: which packs a rank gets, in what they are handed to the model, how many steps there are.
#pragma once
#include <cstdint>

#include "data/batch_loader.h"
#include "model/batch.h"
#include "parallel/device_mesh.h"
#include "train/plan/resolved_run.h"

namespace ripstop {

/// What the loader of this rank's training data needs to know.
BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh);

/// The optimizer steps of the whole run: train.steps, or as many as train.epochs epochs come to (packs differ
/// from epoch to epoch, as each is packed in its own order).
int64_t count_steps(const TokenDataset& dataset, const RunConfig& config, const BatchLoaderOptions& options);

}  // namespace ripstop
