// TrainingStep: model, optimizer and memory of one rank, and one step of training on them. The trainer runs
// it on a device. The planner runs the same code on kMeta.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "model/batch.h"
#include "parallel/sharded_transformer.h"
#include "train/step/adamw.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// The settings of a step.
struct StepOptions {
  ShardingOptions sharding;
  AdamWOptions adamw;
  double max_grad_norm = 1.0;  ///< 0: no clipping
};

/// The result of a step, equal on all ranks of the world.
struct StepResult {
  double loss = 0;            ///< mean over all targets; 0 without targets
  int64_t target_count = 0;   ///< targets of all data ranks
  double gradient_norm = 0;   ///< of the mean loss, before clipping
  bool skipped = false;       ///< loss or norm not finite, or no targets: weights and moments are unchanged
  int64_t stop_requests = 0;  ///< ranks on which a stop was requested
  int64_t saving_ranks = 0;   ///< ranks on which a save was still being written
  int64_t still_disks = 0;    ///< saving ranks whose disk stands still
  bool given_up = false;  ///< by StepHooks::gives_up: weights and moments are unchanged, the rest is not set
};

/// The place of a step in its run. The numbers differ after skipped steps, which are no updates.
struct StepNumbers {
  int64_t step = 1;       ///< from 1; random bits of dropout depend on it
  int64_t update = step;  ///< from 1; for AdamW's bias correction
};

/// The calls of a step to its run. All may be empty.
struct StepHooks {
  /// Called after each micro-batch but the last, with the number done: true, on all ranks, ends the step.
  std::function<bool(int64_t done)> gives_up = {};
  /// The work of this rank for a save. Called once, with `stop_requested`.
  std::function<SaveWork()> save_work = {};
  /// Called with each unit before its weights and moments change.
  std::function<void(size_t unit)> before_update = {};
};

/// One rank's share of training. Owns all memory that it uses; the arena has `arena_capacity` bytes.
class TrainingStep {
 public:
  /// `mesh`, `stream` and `ledger` must outlive this. Throws Error(kResources) if the mesh cannot cut the
  /// model, or if the device has too little memory.
  TrainingStep(const ModelConfig& config, const StepOptions& options, DeviceMesh& mesh, const Stream& stream,
               MemoryLedger& ledger, const MemoryUse& arena_capacity = {});

  /// One optimizer step over `micro_batches` micro-batches of this data rank. Ranks of one tensor group give
  /// equal tokens. Sequence s of micro-batch m is number (m B + s) D + d of the step on data rank d of D,
  /// for dropout. `stop_requested` tells whether this rank got a request to stop; it is called once, after
  /// the gradients, because a signal may come while they are computed. One all-reduce of six float64 carries
  /// loss, targets, squared norm, stop requests, ranks that save and disks that stand still. Collective.
  StepResult run(int64_t micro_batches, NextTokens next, double learning_rate, const StepNumbers& numbers,
                 FunctionRef<bool()> stop_requested, const StepHooks& hooks = {});

  /// The exact loss over micro-batches of all data ranks; see evaluate_batches. Collective.
  LossSum evaluate(int64_t micro_batches, NextTokens next, FunctionRef<bool()> stop_requested);

  ShardedTransformer& model() { return model_; }
  AdamW& optimizer() { return optimizer_; }
  Arena& arena() { return arena_; }

 private:
  StepOptions options_;
  const DeviceMesh& mesh_;
  const Stream& stream_;
  ShardedTransformer model_;
  AdamW optimizer_;
  BatchMemory batch_memory_;
  WorldTotals totals_;
  Buffer scale_memory_;
  Arena arena_;
  /// With the tensor axis, whose rows lie in the arena; null if that axis needs none. Ends before the arena.
  std::unique_ptr<Registration> registration_;
};

}  // namespace ripstop
