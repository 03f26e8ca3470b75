#pragma once
#include <cstdint>
#include <vector>

#include "model/batch.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// The progress of a rank's part of a save during training.
enum class SaveWork {
  kNone,  ///< no save, or this rank has written its part
  kWrites,
  kStands,  ///< the rank is writing, but its disk has done nothing for too long
};

/// The loss of some batches, summed over the world and equal on all ranks.
struct LossSum {
  double loss = 0;            ///< summed over all targets
  int64_t target_count = 0;   ///< tokens whose prediction counts
  int64_t stop_requests = 0;  ///< ranks on which a stop was requested
  int64_t saving_ranks = 0;   ///< ranks on which a save was still being written
  int64_t still_disks = 0;    ///< saving ranks whose disk makes no progress
  double mean() const { return target_count > 0 ? loss / static_cast<double>(target_count) : 0; }
};

/// Float64 sums in device memory: loss, targets, squared gradient norm, stop requests, saving ranks, still
/// disks, losses of data sets. One all-reduce sums all. Owns its memory (category activations).
class WorldTotals {
 public:
  /// `mesh` and `stream` are borrowed. `data_sets`: number of sets with a loss of their own.
  WorldTotals(DeviceMesh& mesh, const Stream& stream, MemoryLedger& ledger, int64_t data_sets = 0);

  void clear();

  /// Sums to which this rank's kernels add: [1] float64 each.
  Tensor loss() const;
  Tensor squared_norm() const;
  /// [data_sets] float64: the loss of each; null without data sets.
  Tensor set_loss() const;
  /// [3] float64: loss, targets, squared norm.
  Tensor for_gradient_scale() const;

  /// Sets this rank's targets, stop request and work for a save, then sums over the world; losses and targets
  /// count on one rank of each tensor group of the last stage. Takes scratch from `arena` (category
  /// communication). Collective.
  void sum_over_world(Arena& arena, int64_t target_count, bool stop_requested,
                      SaveWork save_work = SaveWork::kNone);

  /// The sums on the host, from read(), which waits for the stream.
  struct Sums {
    LossSum loss;
    double squared_norm = 0;
    std::vector<double> set_loss;  ///< loss of each data set
  };
  Sums read() const;

 private:
  DeviceMesh& mesh_;
  const Stream& stream_;
  int64_t data_sets_;
  Buffer memory_;
};

/// Returns the tokens of each micro-batch in turn. The tokens must live until the next call.
using NextTokens = FunctionRef<HostTokens(int64_t micro_batch)>;

/// The exact loss over `count` batches of each data rank, of model.options().sequence_count sequences each.
/// `count` must be equal on all ranks; a batch may have no targets. `batch_memory` must hold
/// model.most_batches() batches. `stop_requested` is called once, after the last batch. Collective.
LossSum evaluate_batches(ShardedTransformer& model, int64_t count, NextTokens next, BatchMemory& batch_memory,
                         WorldTotals& totals, Arena& arena, FunctionRef<bool()> stop_requested);

}  // namespace ripstop
