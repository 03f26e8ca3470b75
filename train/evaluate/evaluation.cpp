#include "train/evaluate/evaluation.h"

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/agreement.h"
#include "train/generate/dealt_texts.h"
#include "train/generate/write_texts.h"

namespace ripstop {
namespace {

// Examples a slot between two gatherings: more lose more to an interruption, fewer wait more often for the
// slowest.
constexpr int64_t kExamplesPerSlot = 4;

// The sum over replicas; ranks of a tensor group hold equal numbers, so one of them speaks.
double sum_over_replicas(DeviceMesh& mesh, double own) {
  double sum = 0;
  const std::vector<std::string> texts = mesh.world().all_gather_text(fmt::format("{}", own));
  for (size_t rank = 0; rank < texts.size(); rank += static_cast<size_t>(mesh.sizes().tensor))
    sum += std::stod(texts[rank]);
  return sum;
}

}  // namespace

SplitLoss split_loss(InferenceModel& model, const TokenDataset& dataset, LossOn loss_on, ReportShare report) {
  DeviceMesh& mesh = model.model().mesh();
  const int64_t sequences = model.options().sequence_count();
  BatchLoader loader(dataset, {.sequence_length = model.options().context,
                               .loss_on = loss_on,
                               .shuffle = false,
                               .global_batch_sequences = sequences * mesh.data_ranks(),
                               .micro_batch_sequences = sequences,
                               .data_rank = mesh.data_rank(),
                               .data_ranks = mesh.data_ranks(),
                               .epochs = 1});
  SplitLoss loss;
  int64_t scored = 0;
  model.take_loss();
  report(0, loader.sequences_per_epoch());
  while (const std::optional<LoaderStep> step = loader.next_step()) {
    for (int64_t batch = 0; batch < loader.batches_per_step(); ++batch)
      model.score(loader.next_batch().host_tokens());
    loss.target_count += step->target_count;
    scored += step->sequences;
    report(scored, loader.sequences_per_epoch());
  }
  loss.sum = sum_over_replicas(mesh, model.take_loss());
  return loss;
}

void write_summaries(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                     int64_t begin, int64_t end, int64_t max_new_tokens, TakeSummaries take) {
  DeviceMesh& mesh = model.model().mesh();
  const int64_t replicas = mesh.data_ranks();
  const int64_t at_once = replicas * model.options().slots * kExamplesPerSlot;
  for (int64_t first = begin; first < end; first += at_once) {
    const int64_t last = std::min(first + at_once, end);
    int64_t next = first + mesh.data_rank();
    std::vector<std::string> own;
    write_texts(
        model, tokenizer, max_new_tokens,
        [&]() -> std::optional<EncodedPrompt> {
          if (next >= last) return std::nullopt;
          const int64_t example = next;
          next += replicas;
          return stored_prompt(dataset, example);
        },
        [&](std::string text) { own.push_back(std::move(text)); });
    if (!take(first, gather_dealt(mesh.world(), mesh.sizes().tensor, own))) return;
  }
}

void write_predictions(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                       int64_t examples, int64_t max_new_tokens, PredictionFile* file, ReportShare report) {
  const int64_t there = file != nullptr ? file->count() : 0;
  const int64_t begin = std::stoll(text_of_rank_0(model.model().mesh().world(), std::to_string(there)));
  report(std::min(begin, examples), examples);
  write_summaries(model, dataset, tokenizer, begin, examples, max_new_tokens,
                  [&](int64_t first, const std::vector<std::string>& summaries) {
                    if (file != nullptr) {
                      std::vector<ExampleText> written = dataset.text(first, std::ssize(summaries));
                      for (size_t i = 0; i < summaries.size(); ++i)
                        file->append({std::move(written[i].id), summaries[i], std::move(written[i].summary),
                                      std::move(written[i].document)});
                    }
                    report(first + std::ssize(summaries), examples);
                    return true;
                  });
}

}  // namespace ripstop
