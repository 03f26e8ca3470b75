#include "train/plan/training_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/dataset/sequence_reader.h"
#include "model/core/error.h"
#include "model/core/rounding.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// The options that do not depend on the ranks.
BatchLoaderOptions sequence_options(const RunConfig& config) {
  return {.sequence_length = config.data.sequence_length,
          .pack = config.data.pack,
          .loss_on = config.data.loss_on,
          .shuffle_seed = static_cast<uint64_t>(config.data.shuffle_seed),
          .shuffle = config.data.shuffle,
          .open_sequences = config.data.shuffle ? PackPlanOptions{}.open_sequences : 1,
          .global_batch_sequences = config.train.global_batch_sequences,
          .epochs = config.train.epochs.value_or(0)};
}

// The number of sequences in all train.epochs; the first epoch has `first`. nullopt if goes_on() is false.
std::optional<int64_t> sequences_of_epochs(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                           int64_t first, FunctionRef<bool()> goes_on) {
  // Without packing each epoch has one sequence for each example or piece.
  if (!options.pack) return options.epochs * first;
  int64_t sequences = first;
  for (int64_t epoch = 1; epoch < options.epochs; ++epoch) {
    if (!goes_on()) return std::nullopt;
    sequences += count_epoch_sequences(dataset, options, epoch).sequences;
  }
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

std::optional<TrainingData> count_training_data(const TokenDataset& dataset, const RunConfig& config,
                                                FunctionRef<bool()> goes_on) {
  const SequenceReader reader(dataset, config.data.sequence_length, config.data.loss_on);
  const BatchLoaderOptions options = sequence_options(config);
  const EpochSequences first = count_epoch_sequences(dataset, options, 0);
  TrainingData data{.kind = dataset.header().kind,
                    .examples = dataset.examples(),
                    .cut_documents = reader.cut_documents(),
                    .cut_summaries = reader.cut_summaries(),
                    .cut_turns = reader.cut_turns(),
                    .without_targets = reader.without_targets(),
                    .epoch_tokens = std::reduce(reader.rows().begin(), reader.rows().end(), int64_t{0}),
                    .epoch_sequences = first.sequences,
                    .plan_hash = first.plan_hash};
  // An example of n tokens predicts n - 1 tokens.
  data.cut_tokens = dataset.tokens() - dataset.examples() - data.epoch_tokens;
  const int64_t batch = config.train.global_batch_sequences;
  if (config.train.epochs) {
    const std::optional<int64_t> sequences = sequences_of_epochs(dataset, options, first.sequences, goes_on);
    if (!sequences) return std::nullopt;
    data.epochs = static_cast<double>(*config.train.epochs);
    data.steps = divide_up(*sequences, batch);
    data.tokens = *config.train.epochs * data.epoch_tokens;
  } else {
    data.steps = *config.train.steps;
    data.epochs = static_cast<double>(data.steps) * static_cast<double>(batch) /
                  static_cast<double>(data.epoch_sequences);
    data.tokens = std::llround(data.epochs * static_cast<double>(data.epoch_tokens));
  }
  return data;
}

bool has_targets(const TokenDataset& dataset, const RunConfig& config) {
  const SequenceReader reader(dataset, config.data.sequence_length, config.data.loss_on);
  return reader.without_targets() < dataset.examples();
}

std::string short_summaries_note(const TokenDataset& dataset, int64_t max_new_tokens) {
  if (dataset.header().kind == ExampleKind::kText) return "";
  std::vector<int64_t> tokens;  // tokens of each summary, with its end token
  for (int64_t i = 0; i < dataset.examples(); ++i)
    tokens.push_back(dataset.spans(i).back().target_end - dataset.spans(i).back().target_begin);
  if (tokens.empty()) return "";
  const auto shown = tokens.begin() + std::ssize(tokens) * 9 / 10;
  std::nth_element(tokens.begin(), shown, tokens.end());
  if (*shown <= max_new_tokens) return "";
  return fmt::format(
      "generation.max_new_tokens is {}, a tenth of the data's {} have {} tokens or more: what the "
      "model writes will lose its end",
      max_new_tokens, dataset.header().kind == ExampleKind::kSummary ? "summaries" : "last answers", *shown);
}

void require_targets(const TokenDataset& dataset, const RunConfig& config) {
  if (has_targets(dataset, config)) return;
  const bool chat = dataset.header().kind == ExampleKind::kConversation;
  // Even the shortest cut of a pair keeps the begin tokens, the separator and the start of the summary.
  int64_t least = INT64_MAX, whole = 0;
  for (int64_t i = 0; i < dataset.examples(); ++i) {
    const TargetSpan& span = dataset.spans(i).front();
    const int64_t cut = span.cut_end - span.cut_begin;
    least = std::min<int64_t>(least, span.target_begin - cut);
    whole = std::max<int64_t>(whole, span.target_end - cut - 1);
  }
  throw Error(
      chat ? ExitCode::kInputData : ExitCode::kUsage,
      fmt::format("nothing to learn: with data.sequence_length {} none of the {} of {} keeps a token "
                  "whose prediction counts",
                  config.data.sequence_length, counted(dataset.examples(), "example"),
                  dataset.path().string()),
      chat ? fmt::format("from data.sequence_length {} on, all first answers fit", whole)
           : fmt::format("give data.sequence_length of at least {}; from {} on every summary stays whole",
                         least, whole));
}

}  // namespace ripstop
