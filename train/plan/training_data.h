// The data of a run: which sequences a rank reads, and how many steps they are.
#pragma once
#include <cstdint>

#include "data/batch_loader.h"
#include "parallel/device_mesh.h"
#include "train/plan/resolved_run.h"

namespace ripstop {

/// The options for the loader of this rank's training data.
BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh);

/// The number of optimizer steps of the whole run: train.steps, or the steps that train.epochs epochs take.
/// Each epoch is counted, because each is packed in its own order and so has its own number of sequences.
int64_t count_steps(const TokenDataset& dataset, const RunConfig& config, const BatchLoaderOptions& options);

}  // namespace ripstop
