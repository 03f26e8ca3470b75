// Packed batches for training and validation, read ahead on a thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loss_on.h"
#include "data/pack_plan.h"
#include "data/token_dataset.h"
#include "model/core/host_tokens.h"

namespace ripstop {

/// What one data rank computes at once: B sequences of T positions, N = B*T rows.
///
/// Rows belong to documents: document d is rows [document_offset[d], document_offset[d+1]). Documents never
/// cross a sequence; attention never crosses a document. Rows without a token of the data set (the tail of a
/// sequence, empty sequences) hold token 0 without a target, in short documents of their own.
struct PackedBatch {
  int64_t sequence_count = 0;            ///< B
  int64_t sequence_length = 0;           ///< T
  std::vector<int32_t> token;            ///< [N]
  std::vector<int32_t> position;         ///< [N] from 0 at each document's begin
  std::vector<int32_t> target;           ///< [N] the id to predict, -1 if the row's prediction does not count
  std::vector<int32_t> document_offset;  ///< [document_count + 1], first 0, last N
  int64_t target_count = 0;              ///< rows whose target is not -1

  int64_t rows() const { return sequence_count * sequence_length; }
  int64_t document_count() const { return static_cast<int64_t>(document_offset.size()) - 1; }
  /// A view of the arrays, as the model takes them; valid as long as this batch.
  HostTokens host_tokens() const { return {token, position, target, document_offset}; }
};

/// A place in the endless row of epochs: the first sequence not yet used.
struct DataCursor {
  int64_t epoch = 0;
  int64_t sequence = 0;
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

struct BatchLoaderOptions {
  int64_t sequence_length = 0;
  bool pack = true;
  LossOn loss_on = LossOn::kSummary;
  uint64_t shuffle_seed = 0;
  bool shuffle = true;                 ///< false: in the data set's order (validation)
  int64_t global_batch_sequences = 0;  ///< sequences of a step, over all data ranks
  int64_t micro_batch_sequences = 1;   ///< B of every batch handed out
  int64_t data_rank = 0;               ///< this rank's place among the ranks that read different sequences
  int64_t data_ranks = 1;
  int64_t epochs = 0;  ///< the run ends with the last sequence of this many epochs; 0: it never does
  int64_t read_ahead_batches = 4;
};

/// What a step uses, over all data ranks: the same on each of them.
struct LoaderStep {
  DataCursor begin, end;     ///< save `end` once the step is done
  int64_t sequences = 0;     ///< less than global_batch_sequences only in a run's last step
  int64_t examples = 0;      ///< examples, or pieces of long text
  int64_t rows = 0;          ///< rows that hold a token of the data set
  int64_t target_count = 0;  ///< targets of all data ranks: what the loss sum is divided by
  double epoch = 0;          ///< of `end`, with its fraction, for people
};

/// What an epoch comes to.
struct EpochSequences {
  int64_t sequences = 0;
  std::string plan_hash;  ///< of its PackPlan: goes with a cursor into checkpoints
};

/// What a loader with `options` deals in epoch `epoch`, without reading a token. Throws Error(kInputData) for
/// a data set without examples.
EpochSequences count_epoch_sequences(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                     int64_t epoch);

/// Deals the sequences of an epoch, epoch after epoch, to data ranks.
///
/// A step takes the next G = global_batch_sequences sequences after the cursor; it may cross the end of an epoch.
/// Slot j of a step goes to data rank j mod data_ranks. A rank's slots fill its batches in order. Slots past G,
/// or past the end of the run, are empty sequences. So the sequences of a step do not depend on the number of
/// ranks.
///
/// A document that makes its example longer than sequence_length loses its tail, never separator or summary;
/// where BOS, separator and summary alone are longer, the summary's end is cut and `cut_summaries` counts the
/// example.
///
/// A thread of its own reads ahead by pread; it never calls libhdf5. What it fails with is thrown by
/// next_step and next_batch. One consumer thread. `dataset` must outlive the loader.
class BatchLoader {
 public:
  /// Builds the plan of the cursor's epoch. Throws Error(kInputData) for a data set without examples and for
  /// a cursor that lies behind the end of its epoch.
  BatchLoader(const TokenDataset& dataset, const BatchLoaderOptions& options, DataCursor start = {});
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// Batches that every rank gets in every step: ceil(ceil(G / data_ranks) / micro_batch_sequences).
  int64_t batches_per_step() const;
  /// Sequences of the start cursor's epoch.
  int64_t sequences_per_epoch() const;
  /// Examples whose summary does not fit into sequence_length even without their document.
  int64_t cut_summaries() const;
  /// Examples whose document is cut.
  int64_t cut_documents() const;

  /// Begins a step, waiting for the reader; nothing at the end of the run. The step before must have been
  /// used up.
  std::optional<LoaderStep> next_step();
  /// The step's next batch, batches_per_step() times after each next_step(). The reference lives until the
  /// next call.
  const PackedBatch& next_batch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
