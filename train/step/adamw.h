// AdamW over the ranges that this rank keeps.
#pragma once
#include <vector>

#include "model/ops/ops.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// What stays the same over a run.
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  bool decay_norms = false;  ///< whether vectors take weight decay too
};

/// First and second moments of every unit's range, float32, zero at first. Owns them.
/// Source: decoupled weight decay, arXiv:1711.05101; the numbers are torch.optim.AdamW's.
class AdamW {
 public:
  AdamW(ShardedTransformer& model, const AdamWOptions& options, const Device& device, MemoryLedger& ledger);

  /// Updates master weights, moments and the copies that are gathered from the gradients times scale [2]; see
  /// `gradient_scale`. `step` counts from 1.
  void step(Context& context, ShardedTransformer& model, double learning_rate, int64_t step,
            const Tensor& scale);

  /// Moments of unit `unit`'s range, [shard_elements] float32.
  const Tensor& first(size_t unit) const { return moments_[unit].first; }
  const Tensor& second(size_t unit) const { return moments_[unit].second; }

 private:
  struct Moments {
    Buffer memory;
    Tensor first, second;
  };
  AdamWOptions options_;
  std::vector<Moments> moments_;
};

}  // namespace ripstop
