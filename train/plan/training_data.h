#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/batch_loader.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/function_ref.h"
#include "parallel/device_mesh.h"
#include "train/checkpoint/manifest.h"
#include "train/plan/resolved_run.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The options with which this rank's BatchLoader reads the training data.
BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh);

struct SetData : DataCounts {
  ExampleKind kind = ExampleKind::kSummary;
  int64_t epoch_targets = 0;  ///< rows of an epoch with a target
  /// The sum of the squares of the examples' tokens, to which attention's time is proportional. Running text
  /// counts as if all of its documents were as long as a sequence.
  double squared_tokens = 0;
  double epochs = 0;  ///< passes over the data in the whole run, expected ones if drawn by weights
};

/// The sums over all data sets. `kind` is the first set's; with weights there are no common epochs (0).
struct TrainingData : SetData {
  std::vector<SetData> sets;   ///< each data set
  std::string plan_hash = {};  ///< hashes of each data set's first PackPlan, with spaces between
  int64_t first_step = 0;      ///< steps done in the checkpoint with which the run goes on
  int64_t steps = 0;           ///< steps of the whole run: train.steps, or as train.epochs need
  int64_t tokens = 0;          ///< tokens of the whole run; an estimate if it ends inside an epoch
  /// Sequences in the first 0, 1, 2 .. epochs without weights, as far as they are counted.
  std::vector<int64_t> sequences_before = {};
};

/// Opens train.h5 of the config's data sets. `tokenizer`: the first set's. Throws Error(kInputData) for a
/// set made with another tokenizer than now lies beside it, or than the first set.
std::vector<TokenDataset> open_training_sets(const RunConfig& config, const Tokenizer& tokenizer);

/// The first of `datasets` that has conversations; null if there is none.
const TokenDataset* find_conversations(DataSets datasets);

/// The reading of conversations (TokenizerFiles) by the model of a run on `datasets`, if the first set has
/// none. nullopt if it has some, or if no set has.
std::optional<TokenizerChoice> question_choice(DataSets datasets);

/// content_hash() of each of `sets`, with spaces between.
std::string content_hashes(const auto& sets) {
  std::string hashes;
  for (const auto& set : sets) hashes += (hashes.empty() ? "" : " ") + set.content_hash();
  return hashes;
}

/// Counts the data of a run that begins from the lengths of its examples; reads no token. With train.epochs,
/// packs every epoch, because epochs differ in their numbers of sequences. Before each epoch except the
/// first, calls goes_on(); if goes_on() is false, returns nullopt. Throws Error(kInputData) for a set without
/// examples.
std::optional<TrainingData> count_training_data(
    DataSets datasets, const RunConfig& config, FunctionRef<bool()> goes_on = [] { return true; });

/// Counts steps, epochs and tokens of `data` anew, for a run that goes on at `from` with `config`: what the
/// cursor has used, and what is left. `data` is of the same data sets, in sequences as `config` packs them.
/// Packs epochs that it does not have yet, calling goes_on() before each; returns false if that is false.
bool count_run(
    TrainingData& data, DataSets datasets, const RunConfig& config, const CheckpointState& from,
    FunctionRef<bool()> goes_on = [] { return true; });

/// Whether any example keeps a target when it is cut to data.sequence_length. Reads no token.
bool has_targets(const TokenDataset& dataset, const RunConfig& config);

/// Throws Error(kUsage) if data.loss_on applies to none of the sets, or unless each has_targets(), for
/// conversations Error(kInputData). The hint names a long enough data.sequence_length.
void require_targets(DataSets datasets, const RunConfig& config);

/// A note if `max_new_tokens` of [generation] would cut more than a tenth of a data set's summaries; else "".
std::string short_summaries_note(DataSets datasets, int64_t max_new_tokens);

/// short_summaries_note(), a note if the data sets have different prompts, and loss_on_note().
std::vector<std::string> data_notes(DataSets datasets, const RunConfig& config);

}  // namespace ripstop
