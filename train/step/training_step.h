// One rank's model, optimizer and memory, and a step of training; on a device, or on kMeta for plans.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/batch.h"
#include "parallel/sharded_transformer.h"
#include "train/step/adamw.h"
#include "train/step/world_totals.h"

namespace ripstop {

struct StepOptions {
  ShardingOptions sharding;
  AdamWOptions adamw;
  double max_grad_norm = 1.0;  ///< limit of the gradient norm; 0: no clipping
  int64_t data_sets = 0;       ///< number of data sets with a loss of their own; 0: no such losses
};

/// The result of a step, equal on all ranks of the world.
struct StepResult {
  double loss = 0;                    ///< mean loss over all targets; 0 without targets
  LossSum sum = {};                   ///< sums of all data ranks
  std::vector<double> set_loss = {};  ///< sum of each data set's losses
  double gradient_norm = 0;           ///< norm of the mean loss's gradient, before clipping
  bool skipped = false;   ///< loss or norm not finite, or no targets: weights and moments are unchanged
  bool given_up = false;  ///< StepHooks::gives_up ended the step: no update; all other members are unset
};

/// Numbers of a step and its update. A skipped step has no update, so `update` may be smaller than `step`.
struct StepNumbers {
  int64_t step = 1;       ///< from 1; seeds dropout
  int64_t update = step;  ///< from 1; for AdamW's bias correction and random bits
};

struct StepHooks {
  /// StepBatches::gives_up; if empty, no step ends early.
  std::function<bool(int64_t done)> gives_up = {};
  /// The state of this rank's save; kNone if empty. Called once, when `stop_requested` is.
  std::function<SaveWork()> save_work = {};
  /// Called with the index of each unit before its weights and moments change.
  std::function<void(size_t unit)> before_update = {};
};

/// Owns a rank's model and optimizer, and an arena of `arena_capacity`.
class TrainingStep {
 public:
  /// `mesh`, `stream` and `ledger` are borrowed. Throws like ShardedTransformer, and Error(kResources)
  /// if the device has too little memory.
  TrainingStep(const ModelConfig& config, const StepOptions& options, DeviceMesh& mesh, const Stream& stream,
               MemoryLedger& ledger, const MemoryUse& arena_capacity = {});

  /// One optimizer step over `micro_batches` micro-batches of this data rank. Ranks of one tensor group and
  /// all stages of a pipeline must give equal tokens. For dropout, sequence s of micro-batch m on data rank d
  /// of D has the number (m B + s) D + d in the step, with B sequences a micro-batch. `stop_requested` (on
  /// this rank) is called once, late in the step, unless the step is given up. Collective.
  StepResult run(int64_t micro_batches, NextTokens next, double learning_rate, const StepNumbers& numbers,
                 FunctionRef<bool()> stop_requested, const StepHooks& hooks = {});

  /// The exact loss over micro-batches of all data ranks (evaluate_batches). Collective.
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
  /// The arena's registration with the tensor axis, or null. Must be destroyed before the arena.
  std::unique_ptr<Registration> registration_;
};

}  // namespace ripstop
