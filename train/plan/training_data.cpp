#include "train/plan/training_data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "data/dataset/dataset_directory.h"
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
          .epochs = config.train.epochs.value_or(0),
          .shares = config.data.shares()};
}

// The number of sequences in the first `epochs` epochs without data.weights; nullopt if goes_on() is false.
// Extends data.sequences_before.
std::optional<int64_t> sequences_of_epochs(TrainingData& data, DataSets datasets,
                                           const BatchLoaderOptions& options, int64_t epochs,
                                           FunctionRef<bool()> goes_on) {
  // Without packing all epochs have as many sequences as the first.
  if (!options.pack) return epochs * data.epoch_sequences;
  std::vector<int64_t>& sums = data.sequences_before;
  while (std::ssize(sums) <= epochs) {
    if (!goes_on()) return std::nullopt;
    int64_t sum = sums.back();
    for (size_t set = 0; set < datasets.size(); ++set)
      sum += count_epoch_sequences(datasets[set], options, std::ssize(sums) - 1, set).sequences;
    sums.push_back(sum);
  }
  return sums[static_cast<size_t>(epochs)];
}

SetData count_set(const TokenDataset& dataset, const RunConfig& config) {
  const SequenceReader reader(dataset, config.data.sequence_length, config.data.loss_on);
  SetData data{{.examples = dataset.examples(),
                .cut_documents = reader.cut_documents(),
                .cut_summaries = reader.cut_summaries(),
                .cut_turns = reader.cut_turns(),
                .without_targets = reader.without_targets(),
                .epoch_tokens = std::reduce(reader.rows().begin(), reader.rows().end(), int64_t{0})},
               dataset.header().kind};
  data.epoch_targets = reader.targets();
  for (const int64_t rows : reader.rows()) {
    const auto longest = static_cast<double>(std::min(rows, config.data.sequence_length));
    data.squared_tokens += static_cast<double>(rows) * longest;
  }
  // An example of n tokens predicts n - 1 tokens.
  data.cut_tokens = dataset.tokens() - dataset.examples() - data.epoch_tokens;
  return data;
}

// Counts the data sets, but not the run.
TrainingData count_sets(DataSets datasets, const RunConfig& config) {
  TrainingData data;
  for (size_t set = 0; set < datasets.size(); ++set) {
    SetData& one = data.sets.emplace_back(count_set(datasets[set], config));
    const EpochSequences first = count_epoch_sequences(datasets[set], sequence_options(config), 0, set);
    one.epoch_sequences = first.sequences;
    data.plan_hash += (data.plan_hash.empty() ? "" : " ") + first.plan_hash;
    for (int64_t DataCounts::*count :
         {&SetData::examples, &SetData::cut_documents, &SetData::cut_summaries, &SetData::cut_turns,
          &SetData::cut_tokens, &SetData::without_targets, &SetData::epoch_tokens, &SetData::epoch_sequences})
      data.*count += one.*count;
    data.epoch_targets += one.epoch_targets;
    data.squared_tokens += one.squared_tokens;
  }
  data.kind = data.sets.front().kind;
  data.sequences_before = {0, data.epoch_sequences};
  return data;
}

std::string chat_text(const TokenDatasetHeader& header) {
  if (header.chat_template.empty()) return "no chat template";
  return fmt::format("the chat template {} of {}", header.chat_template, header.chat_date);
}

// A note if prompts differ: of conversations from those of the first set with conversations, of summaries
// from the first of all sets; else "".
std::string prompts_note(DataSets datasets) {
  const TokenDataset* const conversations = find_conversations(datasets);
  std::vector<std::string> others;
  std::string chats;
  for (const TokenDataset& dataset : datasets) {
    const TokenDatasetHeader& other = dataset.header();
    const bool asks = other.kind == ExampleKind::kConversation;
    const TokenDataset& used = asks ? *conversations : datasets.front();
    const TokenDatasetHeader& first = used.header();
    const bool same =
        std::tie(first.prompt_template, first.chat_template, first.chat_date, first.end_token) ==
        std::tie(other.prompt_template, other.chat_template, other.chat_date, other.end_token);
    if (same || other.kind == ExampleKind::kText) continue;
    if (!asks)
      others.push_back(dataset.path().string());
    else if (chats.empty())
      chats = fmt::format("{} has {}; summarize and exports of this model answer messages by {}, {}",
                          dataset.path().string(), chat_text(other), used.path().string(), chat_text(first));
  }
  if (others.empty()) return chats;
  return fmt::format("{} ha{} another prompt than {}, by which summarize and exports of this model ask{}",
                     fmt::join(others, ", "), others.size() == 1 ? "s" : "ve",
                     datasets.front().path().string(), chats.empty() ? "" : "; " + chats);
}

[[noreturn]] void refuse_without_targets(const TokenDataset& dataset, const RunConfig& config) {
  const bool chat = dataset.header().kind == ExampleKind::kConversation;
  const bool only_last = resolve_loss_on(dataset.header(), config.data.loss_on) == LossOn::kLast;
  // Even the shortest cut of a pair keeps the begin tokens, the separator and the start of the summary.
  int64_t least = INT64_MAX, whole = 0;
  for (int64_t i = 0; i < dataset.examples(); ++i) {
    const TargetSpan& span = only_last ? dataset.spans(i).back() : dataset.spans(i).front();
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
      chat ? fmt::format("from data.sequence_length {} on, all {} answers fit", whole,
                         only_last ? "last" : "first")
           : fmt::format("give data.sequence_length of at least {}; from {} on every summary stays whole",
                         least, whole));
}

}  // namespace

BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh) {
  BatchLoaderOptions options = sequence_options(config);
  options.micro_batch_sequences = run.step.sharding.sequence_count;
  options.data_rank = mesh.data_rank();
  options.data_ranks = mesh.data_ranks();
  return options;
}

std::vector<TokenDataset> open_training_sets(const RunConfig& config, const Tokenizer& tokenizer) {
  std::vector<TokenDataset> datasets;
  for (const std::string& directory : config.data.all()) {
    datasets.emplace_back(dataset_file(directory, "train.h5"));
    // The run stores and decodes with `tokenizer`, so it must be the first data set's.
    if (datasets.size() == 1)
      require_dataset_tokenizer(datasets.back(), tokenizer);
    else
      require_dataset_tokenizer(datasets.back(), Tokenizer(dataset_tokenizer(directory)));
    require_same_tokens(datasets.front(), datasets.back());
  }
  return datasets;
}

bool count_run(TrainingData& data, DataSets datasets, const RunConfig& config, const CheckpointState& from,
               FunctionRef<bool()> goes_on) {
  const DataCursor& at = from.cursor;
  const int64_t batch = config.train.global_batch_sequences;
  data.first_step = from.step;
  if (config.train.epochs) {
    const BatchLoaderOptions options = sequence_options(config);
    const auto all = sequences_of_epochs(data, datasets, options, *config.train.epochs, goes_on);
    const auto used = all ? sequences_of_epochs(data, datasets, options, at.epoch, goes_on) : all;
    if (!used) return false;
    // Counts sequences, because the last step may have been partial if train.epochs was smaller before.
    const int64_t left = *all - *used - at.sequence;
    data.steps = from.step + (left > 0 ? divide_up(left, batch) : left / batch);
    data.epochs = static_cast<double>(*config.train.epochs);
    data.tokens = *config.train.epochs * data.epoch_tokens;
    return true;
  }
  data.steps = *config.train.steps;
  const double left = static_cast<double>(std::max<int64_t>(data.steps - from.step, 0) * batch);
  double tokens = static_cast<double>(from.tokens);
  const auto add = [&](SetData& set, const SetCursor& place, double share) {
    const double coming = share * left / static_cast<double>(set.epoch_sequences);
    set.epochs = static_cast<double>(place.epoch) +
                 static_cast<double>(place.sequence) / static_cast<double>(set.epoch_sequences) + coming;
    tokens += coming * static_cast<double>(set.epoch_tokens);
  };
  const std::vector<double> shares = config.data.shares();
  if (shares.empty()) add(data, {at.epoch, at.sequence}, 1);
  for (size_t set = 0; set < shares.size(); ++set)
    add(data.sets[set], set < at.sets.size() ? at.sets[set] : SetCursor{at.epoch, at.sequence}, shares[set]);
  data.tokens = std::llround(tokens);
  return true;
}

const TokenDataset* find_conversations(DataSets datasets) {
  for (const TokenDataset& dataset : datasets)
    if (dataset.header().kind == ExampleKind::kConversation) return &dataset;
  return nullptr;
}

std::optional<TokenizerChoice> question_choice(DataSets datasets) {
  const TokenDataset* const found = find_conversations(datasets);
  if (found == nullptr || found == &datasets[0]) return std::nullopt;
  return read_tokenizer_choice(found->path().parent_path());
}

std::optional<TrainingData> count_training_data(DataSets datasets, const RunConfig& config,
                                                FunctionRef<bool()> goes_on) {
  TrainingData data = count_sets(datasets, config);
  if (!count_run(data, datasets, config, {}, goes_on)) return std::nullopt;
  return data;
}

bool has_targets(const TokenDataset& dataset, const RunConfig& config) {
  const SequenceReader reader(dataset, config.data.sequence_length, config.data.loss_on);
  return reader.without_targets() < dataset.examples();
}

std::string short_summaries_note(DataSets datasets, int64_t max_new_tokens) {
  for (const TokenDataset& dataset : datasets) {
    if (dataset.header().kind == ExampleKind::kText || dataset.examples() == 0) continue;
    std::vector<int64_t> tokens;  // tokens of each summary, with its end token
    for (int64_t i = 0; i < dataset.examples(); ++i)
      tokens.push_back(dataset.spans(i).back().target_end - dataset.spans(i).back().target_begin);
    const auto shown = tokens.begin() + std::ssize(tokens) * 9 / 10;
    std::nth_element(tokens.begin(), shown, tokens.end());
    if (*shown > max_new_tokens)
      return fmt::format(
          "generation.max_new_tokens is {}, a tenth of the {} of {} have {} tokens or more: what the model "
          "writes will lose its end",
          max_new_tokens, dataset.header().kind == ExampleKind::kSummary ? "summaries" : "last answers",
          dataset.path().string(), *shown);
  }
  return "";
}

void require_targets(DataSets datasets, const RunConfig& config) {
  require_loss_on(datasets, config.data.loss_on);
  for (const TokenDataset& dataset : datasets)
    if (!has_targets(dataset, config)) refuse_without_targets(dataset, config);
}

std::vector<std::string> data_notes(DataSets datasets, const RunConfig& config) {
  std::vector<std::string> notes{short_summaries_note(datasets, config.generation.max_new_tokens),
                                 prompts_note(datasets), ""};
  for (const TokenDataset& dataset : datasets)
    if (notes.back().empty()) notes.back() = loss_on_note(dataset.header(), config.data.loss_on);
  std::erase(notes, "");
  return notes;
}

}  // namespace ripstop
