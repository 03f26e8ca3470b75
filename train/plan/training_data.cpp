#include "train/plan/training_data.h"

#include <cmath>
#include <numeric>

#include "data/sequence_reader.h"
#include "model/core/rounding.h"

namespace ripstop {
namespace {

// What decides the sequences of an epoch. They do not depend on the ranks.
BatchLoaderOptions sequence_options(const RunConfig& config) {
  return {.sequence_length = config.data.sequence_length,
          .pack = config.data.pack,
          .loss_on = config.data.loss_on,
          .shuffle_seed = static_cast<uint64_t>(config.data.shuffle_seed),
          .global_batch_sequences = config.train.global_batch_sequences,
          .epochs = config.train.epochs.value_or(0)};
}

// The sequences of all of train.epochs, the first of which has `first`.
int64_t sequences_of_epochs(const TokenDataset& dataset, const BatchLoaderOptions& options, int64_t first) {
  // Without packing an epoch has a sequence for each example or piece, in whatever order.
  if (!options.pack) return options.epochs * first;
  int64_t sequences = first;
  for (int64_t epoch = 1; epoch < options.epochs; ++epoch)
    sequences += count_epoch_sequences(dataset, options, epoch).sequences;
  return sequences;
}

}  // namespace

BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh) {
  BatchLoaderOptions options = sequence_options(config);
  options.micro_batch_sequences = run.step.sharding.sequence_count;
  options.data_rank = mesh.data_rank();
  options.data_ranks = mesh.data_ranks();
  return options;
}

TrainingData count_training_data(const TokenDataset& dataset, const RunConfig& config) {
  const SequenceReader reader(dataset, config.data.sequence_length, config.data.loss_on);
  const BatchLoaderOptions options = sequence_options(config);
  const EpochSequences first = count_epoch_sequences(dataset, options, 0);
  TrainingData data{.examples = dataset.examples(),
                    .cut_documents = reader.cut_documents(),
                    .cut_summaries = reader.cut_summaries(),
                    .epoch_tokens = std::reduce(reader.rows().begin(), reader.rows().end(), int64_t{0}),
                    .epoch_sequences = first.sequences,
                    .plan_hash = first.plan_hash};
  // An example of n tokens has n - 1 whose successor is predicted.
  data.cut_tokens = dataset.tokens() - dataset.examples() - data.epoch_tokens;
  const int64_t batch = config.train.global_batch_sequences;
  if (config.train.epochs) {
    data.epochs = static_cast<double>(*config.train.epochs);
    data.steps = divide_up(sequences_of_epochs(dataset, options, first.sequences), batch);
    data.tokens = *config.train.epochs * data.epoch_tokens;
  } else {
    data.steps = *config.train.steps;
    data.epochs = static_cast<double>(data.steps) * static_cast<double>(batch) /
                  static_cast<double>(data.epoch_sequences);
    data.tokens = std::llround(data.epochs * static_cast<double>(data.epoch_tokens));
  }
  return data;
}

}  // namespace ripstop
