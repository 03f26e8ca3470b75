// Packed batches for training and validation, read ahead on a thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "data/dataset/loss_on.h"
#include "data/dataset/packed_batch.h"
#include "data/dataset/sequence_reader.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// A place in the endless row of epochs: the first sequence not yet used.
struct DataCursor {
  int64_t epoch = 0;
  int64_t sequence = 0;
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

struct BatchLoaderOptions {
  int64_t sequence_length = 0;
  int64_t examples = 0;  ///< only the first so many of the data set; 0: all
  bool pack = true;
  LossOn loss_on = LossOn::kSummary;
  uint64_t shuffle_seed = 0;
  bool shuffle = true;                 ///< false: in the order of the data set (validation)
  int64_t global_batch_sequences = 0;  ///< sequences of a step, over all data ranks
  int64_t micro_batch_sequences = 1;   ///< B of every batch handed out
  int64_t data_rank = 0;               ///< this rank's place among the ranks that read different sequences
  int64_t data_ranks = 1;
  int64_t epochs = 0;  ///< the run ends with the last sequence of this many epochs; 0: it never ends
  int64_t read_ahead_batches = 4;
};

/// One step, over all data ranks: the same on each of them.
struct LoaderStep {
  DataCursor begin, end;     ///< save `end` when the step is done
  int64_t sequences = 0;     ///< less than global_batch_sequences only in a run's last step
  int64_t examples = 0;      ///< examples, or pieces of long text
  int64_t rows = 0;          ///< rows that hold a token of the data set
  int64_t target_count = 0;  ///< targets of all data ranks: the divisor of the loss sum
  double epoch = 0;          ///< of `end`, with its fraction, for people
};

/// The sequences of an epoch.
struct EpochSequences {
  int64_t sequences = 0;
  std::string plan_hash;  ///< PackPlan::hash: goes with a cursor into checkpoints
};

/// Counts what a loader with `options` deals in epoch `epoch`. Reads no token. Throws Error(kInputData) for a
/// data set without examples.
EpochSequences count_epoch_sequences(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                     int64_t epoch);

/// The documents of the batches of all data ranks in at most `steps` steps from `start` on: the same on every
/// rank, with the number of batches that have them. Reads no token. Throws Error(kInputData) for a data set
/// without examples.
std::map<DocumentSizes, int64_t> coming_documents(const TokenDataset& dataset,
                                                  const BatchLoaderOptions& options, DataCursor start,
                                                  int64_t steps);

/// Deals the sequences of an epoch, epoch after epoch, to data ranks.
///
/// A step takes the next G = global_batch_sequences sequences after the cursor; it may cross the end of an
/// epoch. Slot j of a step goes to data rank j mod data_ranks. A rank's slots fill its batches in order.
/// Slots past G, or past the end of the run, are empty sequences. So the sequences of a step do not depend on
/// the number of ranks.
///
/// SequenceReader says how examples longer than sequence_length are cut.
///
/// A thread of its own reads ahead by pread; it never calls libhdf5. If it fails, next_step and next_batch
/// throw its exception. One consumer thread. `dataset` must outlive the loader.
class BatchLoader {
 public:
  /// Builds the plan of the cursor's epoch and starts the reading thread. Throws Error(kInputData) for a data
  /// set without examples, and for a cursor after the end of its epoch.
  BatchLoader(const TokenDataset& dataset, const BatchLoaderOptions& options, DataCursor start = {});
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// Batches that every rank gets in every step: ceil(ceil(G / data_ranks) / micro_batch_sequences).
  int64_t batches_per_step() const;
  /// Sequences of the start cursor's epoch.
  int64_t sequences_per_epoch() const;

  /// Begins a step; waits for the reading thread. nullopt at the end of the run. All batches of the step
  /// before must have been taken.
  std::optional<LoaderStep> next_step();
  /// The step's next batch; call it batches_per_step() times after each next_step(). The reference is valid
  /// until the next call.
  const PackedBatch& next_batch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
