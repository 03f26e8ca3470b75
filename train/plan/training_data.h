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
  /// The sum of n^2 over all examples of n rows, to which attention's time is proportional; n T for running
  /// text that is longer than a sequence of T.
  double squared_tokens = 0;
  double epochs = 0;  ///< passes over the data in the whole run; with data.weights the expected number
};

/// The sums over all data sets. `kind`: the first set's. `epochs` is 0 with data.weights, in `sets` without.
struct TrainingData : SetData {
  std::vector<SetData> sets;   ///< each data set
  std::string plan_hash = {};  ///< the hash of each data set's first PackPlan, with spaces between
  int64_t first_step = 0;      ///< steps done in the checkpoint with which the run goes on
  int64_t steps = 0;           ///< steps of the whole run: train.steps, or as train.epochs need
  int64_t tokens = 0;          ///< tokens of the whole run; with train.steps an estimate
  /// Sequences of the first 0, 1, 2 .. epochs, as far as counted; not used with data.weights.
  std::vector<int64_t> sequences_before = {};
};

/// Opens train.h5 of the config's data sets. `tokenizer`: the first set's. Throws Error(kInputData) if the
/// tokenizer that made a set is not the tokenizer in the set's directory, or not like the first set's.
std::vector<TokenDataset> open_training_sets(const RunConfig& config, const Tokenizer& tokenizer);

/// The first of `datasets` that has conversations; null if there is none.
const TokenDataset* find_conversations(DataSets datasets);

/// The tokenizer options of the first set with conversations: how a model of the run reads questions. nullopt
/// if that is the first of all sets, whose options the run's tokenizer has, or if no set has conversations.
std::optional<TokenizerChoice> question_choice(DataSets datasets);

/// content_hash() of each of `sets`, with spaces between.
std::string content_hashes(const auto& sets) {
  std::string hashes;
  for (const auto& set : sets) hashes += (hashes.empty() ? "" : " ") + set.content_hash();
  return hashes;
}

/// Counts the data of a run from step 0. Reads lengths of examples, but no token. With train.epochs and
/// data.pack, packs every epoch, because epochs differ in their numbers of sequences. Before each epoch but
/// the first, calls goes_on(), and returns nullopt if it is false. Throws the errors of SequenceReader().
std::optional<TrainingData> count_training_data(
    DataSets datasets, const RunConfig& config, FunctionRef<bool()> goes_on = [] { return true; });

/// Counts steps, epochs and tokens of `data` anew, for a run that goes on from `from` with `config`: the part
/// up to its cursor, and the part that is left. `data` must count `datasets`, packed as in `config`. Packs
/// epochs that `data` has not counted, calling goes_on() before each; returns false if that is false.
bool count_run(
    TrainingData& data, DataSets datasets, const RunConfig& config, const CheckpointState& from,
    FunctionRef<bool()> goes_on = [] { return true; });

/// Whether any example keeps a target when it is cut to data.sequence_length. Reads no token.
bool has_targets(const TokenDataset& dataset, const RunConfig& config);

/// Throws like require_loss_on() and SequenceReader(). Throws Error(kUsage), for conversations
/// Error(kInputData), if a set has no targets; the hint names a data.sequence_length at
/// which all summaries, or all first or last answers, fit.
void require_targets(DataSets datasets, const RunConfig& config);

/// A note if `max_new_tokens` would cut a tenth or more of a set's summaries or last answers; else "".
std::string short_summaries_note(DataSets datasets, int64_t max_new_tokens);

/// short_summaries_note(), a note if the data sets have different prompts, and loss_on_note().
std::vector<std::string> data_notes(DataSets datasets, const RunConfig& config);

}  // namespace ripstop
