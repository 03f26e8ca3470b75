#include "train/run_data.h"

#include "model/rounding.h"

namespace ripstop {

BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh) {
  return {.sequence_length = config.data.sequence_length,
          .pack = config.data.pack,
          .loss_on = config.data.loss_on,
          .shuffle_seed = static_cast<std::uint64_t>(config.data.shuffle_seed),
          .global_batch_sequences = config.train.global_batch_sequences,
          .micro_batch_sequences = run.step.sharding.sequences,
          .data_rank = mesh.data_rank(),
          .data_ranks = mesh.data_ranks(),
          .epochs = config.train.epochs.value_or(0)};
}

std::int64_t count_steps(const TokenDataset& dataset, const RunConfig& config,
                         const BatchLoaderOptions& options) {
  if (config.train.steps) return *config.train.steps;
  std::int64_t packs = 0;
  for (std::int64_t epoch = 0; epoch < *config.train.epochs; ++epoch)
    packs += count_epoch_packs(dataset, options, epoch).packs;
  return divide_up(packs, options.global_batch_sequences);
}

HostTokens host_tokens(const PackedBatch& batch) {
  return {batch.tokens, batch.position, batch.targets, batch.document_offset};
}

}  // namespace ripstop
