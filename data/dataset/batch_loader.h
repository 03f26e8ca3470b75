#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/data_cursor.h"
#include "data/dataset/loss_on.h"
#include "data/dataset/packed_batch.h"
#include "data/dataset/sequence_reader.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// The data sets of a run, one or more.
struct DataSets : std::span<const TokenDataset> {
  DataSets(const TokenDataset& one) : span(&one, 1) {}
  DataSets(const std::vector<TokenDataset>& all) : span(all) {}
};

struct BatchLoaderOptions {
  int64_t sequence_length = 0;
  int64_t examples = 0;  ///< the first `examples` of each data set; 0: all
  bool pack = true;
  LossOn loss_on = LossOn::kAuto;
  uint64_t shuffle_seed = 0;
  bool shuffle = true;  ///< false: packs in the order of the data set
  int64_t open_sequences = PackPlanOptions{}.open_sequences;
  int64_t global_batch_sequences = 0;  ///< sequences in a step, over all data ranks
  int64_t micro_batch_sequences = 1;
  int64_t data_rank = 0;  ///< index among the ranks that read different sequences
  int64_t data_ranks = 1;
  int64_t epochs = 0;  ///< epochs after which the run ends; 0, or for several sets with weights: never
  /// data.weights, scaled to the sum 1: each set's chance to be drawn for a sequence. Empty: no weights.
  std::vector<double> shares = {};
};

/// One data set's part of a step.
struct SetShare {
  int64_t sequences = 0;
  int64_t rows = 0;
  int64_t target_count = 0;
};

/// One step of all data ranks together. The same on every rank.
struct LoaderStep {
  /// Cursors before and after the step.
  DataCursor begin, end;
  int64_t sequences = 0;       ///< less than global_batch_sequences only in the last step of a run
  int64_t rows = 0;            ///< rows of the sequences, without padding
  int64_t target_count = 0;    ///< the divisor of the loss sum
  std::vector<SetShare> sets;  ///< for each data set
};

struct EpochSequences {
  int64_t sequences = 0;
  std::string plan_hash;  ///< PackPlan::hash(); checkpoints store it with a cursor
};

/// Counts the sequences of `epoch` of data set number `set`. Reads no token. Throws the errors of
/// SequenceReader().
EpochSequences count_epoch_sequences(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                     int64_t epoch, size_t set = 0);

/// Counts the batches of all data ranks by their DocumentSizes, in the next `steps` steps from `start` on, or
/// up to the end of the run. The same on every rank. Reads no token. Throws the errors of BatchLoader().
std::map<DocumentSizes, int64_t> coming_documents(DataSets datasets, const BatchLoaderOptions& options,
                                                  const DataCursor& start, int64_t steps);

/// Divides the sequences, epoch after epoch, among the data ranks.
///
/// A sequence has examples of one data set. Without data.weights, an epoch has all sequences of all sets, in
/// an order of the sets keyed by (seed, epoch); without `shuffle`, set after set. With data.weights, sequence
/// i of the run is the next of a set that a number keyed by (seed, i) draws, and each set has its own epochs.
///
/// A step takes the next G = global_batch_sequences sequences for any number of ranks, and may cross the end
/// of an epoch. Sequence j of a step goes to data rank j mod data_ranks. Each data rank fills its batches in
/// order; empty sequences fill the last batches.
///
/// A thread reads ahead with pread and never calls libhdf5. If the thread fails, next_step() and next_batch()
/// throw its exception. Only one thread may use a loader. `datasets` must outlive the loader.
class BatchLoader {
 public:
  /// Plans the epoch of `start` and starts the reading thread. `start.sets` may be empty for one data set, or
  /// at the beginning of a run; without weights, only its SetCursor::tokens count. Throws Error(kInputData)
  /// if `start` has another number of sets or is beyond an epoch's end, and the errors of SequenceReader().
  BatchLoader(DataSets datasets, const BatchLoaderOptions& options, const DataCursor& start = {});
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// Batches of each rank in a step: ceil(ceil(G / data_ranks) / micro_batch_sequences).
  int64_t batches_per_step() const;
  /// Number of sequences in the epoch of `start`; with weights, in the sets' epochs at `start`, together.
  int64_t sequences_per_epoch() const;

  /// Starts a step. All batches of the previous step must have been taken. Waits for the reading thread.
  /// Returns nullopt at the end of the run.
  std::optional<LoaderStep> next_step();
  /// The step's next batch. Call it batches_per_step() times a step. Valid until the next call on the loader.
  const PackedBatch& next_batch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
