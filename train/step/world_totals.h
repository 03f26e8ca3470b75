// WorldTotals: the sums of a step or an evaluation over all ranks.
#pragma once
#include <cstdint>

#include "model/batch.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// The work of a rank for a save beside training.
enum class SaveWork {
  kNone,    ///< nothing, or it has written
  kWrites,  ///< the rank still writes
  kStands,  ///< the rank still writes, and its disk has done nothing for too long
};

/// The loss of some batches, summed over the world and equal on all ranks.
struct LossSum {
  double loss = 0;            ///< the sum of the losses of all targets
  int64_t target_count = 0;   ///< tokens whose prediction counts
  int64_t stop_requests = 0;  ///< ranks on which a stop was requested
  int64_t saving_ranks = 0;   ///< ranks on which a save was still being written
  int64_t still_disks = 0;    ///< saving ranks whose disk stands still
  double mean() const { return target_count > 0 ? loss / static_cast<double>(target_count) : 0; }
};

/// Six float64 sums in device memory: loss, targets, squared gradient norm, stop requests, ranks that save,
/// disks that stand still. One all-reduce carries all of them. Owns its memory (category activations).
class WorldTotals {
 public:
  /// `mesh` and `stream` must outlive this.
  WorldTotals(DeviceMesh& mesh, const Stream& stream, MemoryLedger& ledger);

  /// Sets all sums to zero.
  void clear();

  /// [1] float64 each: the kernels of this rank add to them.
  Tensor loss() const;
  Tensor squared_norm() const;
  /// [3] float64, for gradient_scale: loss, targets, squared norm.
  Tensor for_gradient_scale() const;

  /// Adds this rank's targets, stop request and work for a save, then sums everything over the world. Ranks
  /// of one tensor group have the same loss and targets, so only the first rank of each group counts. Takes
  /// scratch from `arena` (category communication). Collective.
  void sum_over_world(Arena& arena, int64_t target_count, bool stop_requested,
                      SaveWork save_work = SaveWork::kNone);

  /// The sums on the host. Waits for the stream.
  struct Sums {
    LossSum loss;
    double squared_norm = 0;
  };
  Sums read() const;

 private:
  DeviceMesh& mesh_;
  const Stream& stream_;
  Buffer memory_;
};

/// Called for each micro-batch in turn. The tokens must live until the next call.
using NextTokens = FunctionRef<HostTokens(int64_t micro_batch)>;

/// Micro-batches in host memory: how many, and of how many sequences each.
struct HostBatches {
  int64_t count = 0;
  int64_t sequence_count = 0;
  NextTokens next;
};

/// The exact loss of `batches`, of all data ranks together. Every rank gives equally many; a rank that has no
/// more gives empty ones. `batch_memory` and `arena` hold one of them at a time. `stop_requested` is called
/// once, after the last batch. Collective.
LossSum evaluate_batches(ShardedTransformer& model, const HostBatches& batches, BatchMemory& batch_memory,
                         WorldTotals& totals, Arena& arena, FunctionRef<bool()> stop_requested);

}  // namespace ripstop
