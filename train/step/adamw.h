// AdamW over the shards that this rank stores.
#pragma once
#include <vector>

#include "model/ops/ops.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// The settings that stay the same over a run.
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  bool decay_norms = false;  ///< whether vectors (norm weights) take weight decay, too
};

/// The first and second moments of every unit's shard, float32, zero at first. Owns them (category optimizer,
/// 8 bytes an element).
/// Source: decoupled weight decay, arXiv:1711.05101; the order of operations is torch.optim.AdamW's.
class AdamW {
 public:
  AdamW(ShardedTransformer& model, const AdamWOptions& options, const Device& device, MemoryLedger& ledger);

  /// Updates master weights and moments from the gradients times scale[0], and writes the compute copies,
  /// which are what the ranks gather. If scale[1] is 0, weights and moments stay as they are. scale [2]
  /// float32 is gradient_scale's. `update` counts the updates from 1, for the bias correction.
  void step(Context& context, ShardedTransformer& model, double learning_rate, int64_t update,
            const Tensor& scale);

  /// The moments of the shard of unit `unit`, [shard_elements] float32.
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
