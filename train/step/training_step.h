// TrainingStep: model, optimizer and memory of one rank, and one step of training on them. The trainer runs
// it on a device; the planner runs the same on kMeta.
#pragma once
#include <cstdint>

#include "model/batch.h"
#include "parallel/sharded_transformer.h"
#include "train/step/adamw.h"

namespace ripstop {

/// What a step is made of.
struct StepOptions {
  ShardingOptions sharding;
  AdamWOptions adamw;
  double max_grad_norm = 1.0;  ///< 0: no clipping
};

/// What a step came to, equal on all ranks of the world.
struct StepResult {
  double loss = 0;           ///< mean over all targets; 0 without any
  double target_count = 0;   ///< of all data ranks
  double gradient_norm = 0;  ///< of the mean loss, before clipping
  bool skipped = false;      ///< loss or norm not finite (or no targets): nothing was changed
  double stop_requests = 0;  ///< how many ranks asked to stop
};

/// Sums over the world.
struct LossSum {
  double loss = 0;
  double target_count = 0;
  double stop_requests = 0;  ///< how many ranks asked to stop
  double mean() const { return target_count > 0 ? loss / target_count : 0; }
};

/// One rank's share of training. Owns everything it allocates; the arena is as large as `arena_capacity`.
class TrainingStep {
 public:
  TrainingStep(const ModelConfig& config, const StepOptions& options, DeviceMesh& mesh, const Stream& stream,
               MemoryLedger& ledger, const MemoryUse& arena_capacity = {});

  /// Called for each micro-batch in turn; what it returns must live until the next call.
  using NextTokens = FunctionRef<HostTokens(int64_t micro_batch)>;

  /// One optimizer step over `micro_batches` micro-batches of this data rank. Ranks of one tensor group give
  /// equal tokens. `step` counts from 1. `stop_requested`: whether this rank would like to stop after this step;
  /// asked when the gradients are there, as a signal may come while they are computed. One packed float64
  /// all-reduce carries loss, targets, squared norm and votes.
  StepResult run(int64_t micro_batches, NextTokens next, double learning_rate, int64_t step,
                 FunctionRef<bool()> stop_requested);

  /// Exact loss over micro-batches of all data ranks; every rank gives equally many (empty ones where it has
  /// no more). `stop_requested` as in run.
  LossSum evaluate(int64_t micro_batches, NextTokens next, FunctionRef<bool()> stop_requested);

  ShardedTransformer& model() { return model_; }
  AdamW& optimizer() { return optimizer_; }
  Arena& arena() { return arena_; }

 private:
  void sum_over_world(const Tensor& totals);

  StepOptions options_;
  DeviceMesh& mesh_;
  const Stream& stream_;
  ShardedTransformer model_;
  AdamW optimizer_;
  BatchMemory batch_memory_;
  Buffer totals_memory_;
  Arena arena_;
};

}  // namespace ripstop
