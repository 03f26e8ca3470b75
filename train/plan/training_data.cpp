#include "train/plan/training_data.h"

#include "model/core/rounding.h"

namespace ripstop {

BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh) {
  return {.sequence_length = config.data.sequence_length,
          .pack = config.data.pack,
          .loss_on = config.data.loss_on,
          .shuffle_seed = static_cast<uint64_t>(config.data.shuffle_seed),
          .global_batch_sequences = config.train.global_batch_sequences,
          .micro_batch_sequences = run.step.sharding.sequence_count,
          .data_rank = mesh.data_rank(),
          .data_ranks = mesh.data_ranks(),
          .epochs = config.train.epochs.value_or(0)};
}

int64_t count_steps(const TokenDataset& dataset, const RunConfig& config, const BatchLoaderOptions& options) {
  if (config.train.steps) return *config.train.steps;
  int64_t sequences = 0;
  // Each epoch shuffles anew, so packing may give another number of sequences.
  for (int64_t epoch = 0; epoch < *config.train.epochs; ++epoch)
    sequences += count_epoch_sequences(dataset, options, epoch).sequences;
  return divide_up(sequences, options.global_batch_sequences);
}

}  // namespace ripstop
