// BatchLoader: packed batches for training and validation, read ahead on a thread of its own.
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

/// A position in the endless series of epochs: the next sequence to use.
struct DataCursor {
  int64_t epoch = 0;
  int64_t sequence = 0;
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

struct BatchLoaderOptions {
  int64_t sequence_length = 0;
  int64_t examples = 0;  ///< takes only the first so many of the data set; 0: all
  bool pack = true;
  LossOn loss_on = LossOn::kSummary;
  uint64_t shuffle_seed = 0;
  bool shuffle = true;                 ///< false: in the order of the data set (validation)
  int64_t global_batch_sequences = 0;  ///< sequences of a step, over all data ranks
  int64_t micro_batch_sequences = 1;   ///< sequences of a batch
  int64_t data_rank = 0;               ///< this rank's index among the ranks that read different sequences
  int64_t data_ranks = 1;
  int64_t epochs = 0;  ///< the run ends after so many epochs; 0: never
};

/// The sequences of one step on all data ranks together; the same on each rank.
struct LoaderStep {
  DataCursor begin, end;     ///< save `end` when the step is done
  int64_t sequences = 0;     ///< less than global_batch_sequences only in the last step of a run
  int64_t examples = 0;      ///< examples, or pieces of long text
  int64_t rows = 0;          ///< rows without padding
  int64_t target_count = 0;  ///< the divisor of the loss sum
  double epoch = 0;          ///< of `end`, with a fraction, for people
};

/// The sequences of an epoch.
struct EpochSequences {
  int64_t sequences = 0;
  std::string plan_hash;  ///< PackPlan::hash; checkpoints store it beside a cursor
};

/// The sequences that a loader with `options` deals in epoch `epoch`. Reads no token. Throws
/// Error(kInputData) for a data set without examples.
EpochSequences count_epoch_sequences(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                     int64_t epoch);

/// The document sizes of all batches of all data ranks in at most `steps` steps from `start` on, each with
/// the number of its batches; the same on every rank. Reads no token. Throws Error(kInputData) for a data set
/// without examples.
std::map<DocumentSizes, int64_t> coming_documents(const TokenDataset& dataset,
                                                  const BatchLoaderOptions& options, DataCursor start,
                                                  int64_t steps);

/// Deals the sequences of an epoch, epoch after epoch, to data ranks.
///
/// A step takes the next G = global_batch_sequences sequences after the cursor, across the end of an epoch if
/// need be: its sequences do not depend on the number of ranks. Sequence j of a step goes to data rank j mod
/// data_ranks, whose sequences fill its batches in order. Empty sequences follow sequence G, or the end of
/// the run. SequenceReader cuts examples that are longer than sequence_length.
///
/// A thread reads ahead by pread and never calls libhdf5. If it fails, next_step and next_batch throw its
/// exception. Only one thread may use a loader. `dataset` must outlive it.
class BatchLoader {
 public:
  /// Makes the plan of the epoch of `start` and starts the reading thread. Throws Error(kInputData) for a
  /// data set without examples, and for a cursor beyond the end of its epoch.
  BatchLoader(const TokenDataset& dataset, const BatchLoaderOptions& options, DataCursor start = {});
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// Batches of each rank in every step: ceil(ceil(G / data_ranks) / micro_batch_sequences).
  int64_t batches_per_step() const;
  /// Sequences of the start cursor's epoch.
  int64_t sequences_per_epoch() const;

  /// Starts a step; waits for the reading thread. nullopt at the end of the run. The caller must have taken
  /// all batches of the step before.
  std::optional<LoaderStep> next_step();
  /// The next batch of the step; call it batches_per_step() times after each next_step(). The reference is
  /// valid until the next call.
  const PackedBatch& next_batch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
