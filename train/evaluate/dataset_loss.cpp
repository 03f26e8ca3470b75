#include "train/evaluate/dataset_loss.h"

#include <algorithm>
#include <optional>

#include "model/core/rounding.h"
#include "parallel/agreement.h"

namespace ripstop {

BatchLoaderOptions once_through(BatchLoaderOptions options) {
  options.shuffle = false;
  options.epochs = 1;
  options.global_batch_sequences = options.micro_batch_sequences * options.data_ranks;
  return options;
}

LossSum dataset_loss(Communicator& world, const TokenDataset& dataset, BatchLoaderOptions options,
                     SumLosses sum_losses, EvaluateBatches evaluate, ReportShare report) {
  options = once_through(options);
  std::optional<BatchLoader> loader;
  do_and_agree(world, [&] { loader.emplace(dataset, options); });

  const int64_t sequences = loader->sequences_per_epoch();
  const int64_t steps = divide_up(sequences, options.global_batch_sequences);
  const int64_t steps_at_once = sum_losses == SumLosses::kEveryStep ? 1 : steps;
  LossSum sum;
  int64_t done = 0;
  // A sum over the world costs a wait for the slowest rank, so without stop requests there is only one.
  for (int64_t first = 0; first < steps && sum.stop_requests == 0; first += steps_at_once) {
    const int64_t batches = std::min(steps_at_once, steps - first) * loader->batches_per_step();
    const LossSum part = evaluate(batches, [&](int64_t number) {
      if (number % loader->batches_per_step() == 0) {  // the first batch of a step
        report(done, sequences);
        done += loader->next_step()->sequences;
      }
      return loader->next_batch().host_tokens();
    });
    sum.loss += part.loss;
    sum.target_count += part.target_count;
    sum.stop_requests += part.stop_requests;
  }
  report(done, sequences);
  return sum;
}

// With the shapes of generation, so that evaluate needs no memory beyond its plan.
LossSum dataset_loss(InferenceModel& model, const TokenDataset& dataset, int64_t examples, LossOn loss_on,
                     ReportShare report) {
  const DeviceMesh& mesh = model.model().mesh();
  const BatchLoaderOptions options{.sequence_length = model.options().context,
                                   .examples = examples,
                                   .loss_on = loss_on,
                                   .micro_batch_sequences = model.options().sequence_count(),
                                   .data_rank = mesh.data_rank(),
                                   .data_ranks = mesh.data_ranks()};
  return dataset_loss(
      mesh.world(), dataset, options, SumLosses::kOnce,
      [&](int64_t count, NextTokens next) { return model.evaluate(count, next); }, report);
}

}  // namespace ripstop
