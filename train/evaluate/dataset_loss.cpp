#include "train/evaluate/dataset_loss.h"

#include <optional>

#include "parallel/agreement.h"

namespace ripstop {

BatchLoaderOptions once_through(BatchLoaderOptions options) {
  options.shuffle = false;
  options.open_sequences = PackPlanOptions{}.open_sequences;
  options.epochs = 1;
  options.global_batch_sequences = options.micro_batch_sequences * options.data_ranks;
  return options;
}

LossSoFar dataset_loss(Communicator& world, const TokenDataset& dataset, BatchLoaderOptions options,
                       const LossSoFar& begin, EvaluateBatches evaluate, ReportShare report) {
  LossSoFar loss = begin;
  loss.sum.stop_requests = 0;
  if (loss.complete) return loss;
  options = once_through(options);
  std::optional<BatchLoader> loader;
  do_and_agree(world, [&] { loader.emplace(dataset, options, DataCursor{0, begin.sequences}); });

  const int64_t sequences = loader->sequences_per_epoch();
  // Adds the loss of one step at a time, so that an interrupted and resumed evaluation gives the same bits.
  while (loss.sequences < sequences && loss.sum.stop_requests == 0) {
    report(loss.sequences, sequences);
    int64_t in_step = 0;
    const LossSum part = evaluate(loader->batches_per_step(), [&](int64_t number) {
      if (number == 0) in_step = loader->next_step()->sequences;
      return loader->next_batch().host_tokens();
    });
    loss.sequences += in_step;
    loss.sum.loss += part.loss;
    loss.sum.target_count += part.target_count;
    loss.sum.stop_requests += part.stop_requests;
  }
  loss.complete = loss.sequences >= sequences;
  if (loss.complete) loss.sum.stop_requests = 0;
  report(loss.sequences, sequences);
  return loss;
}

// The batches have the shape that plan_inference() plans for, so `evaluate` needs no memory beyond its plan.
LossSoFar dataset_loss(InferenceModel& model, const TokenDataset& dataset, int64_t examples, LossOn loss_on,
                       const LossSoFar& begin, FunctionRef<bool()> stop_requested, ReportShare report) {
  const DeviceMesh& mesh = model.model().mesh();
  const BatchLoaderOptions options{.sequence_length = model.options().context,
                                   .examples = examples,
                                   .loss_on = loss_on,
                                   .micro_batch_sequences = model.options().sequence_count(),
                                   .data_rank = mesh.data_rank(),
                                   .data_ranks = mesh.data_ranks()};
  return dataset_loss(
      mesh.world(), dataset, options, begin,
      [&](int64_t count, NextTokens next) { return model.evaluate(count, next, stop_requested); }, report);
}

}  // namespace ripstop
