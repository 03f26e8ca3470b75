// AdamW over the shards that this rank stores.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "model/ops/ops.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// The settings that stay the same over a run.
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  bool decay_norms = false;         ///< whether vectors (norm weights) take weight decay, too
  DType moments = DType::kFloat32;  ///< in which both moments are stored: float32 or bfloat16
  uint64_t seed = 0;                ///< of the random bits that round bfloat16 moments
};

/// The MomentBits::key of a parameter: one Philox block of its name's hash under the seed.
uint64_t moment_key(uint64_t seed, std::string_view parameter);

/// The first and second moments of the shard of every unit that is trained, zero at first. Owns them
/// (category optimizer, 8 bytes an element, or 4 if they are bfloat16). Moments in bfloat16 are computed in
/// float32 and rounded at random. The bits depend on seed, update, moment, parameter and logical element, so
/// they are the same on every mesh: ranks that hold the same element keep the same moments. Source:
/// decoupled weight decay, arXiv:1711.05101; the order of operations is torch.optim.AdamW's.
class AdamW {
 public:
  AdamW(ShardedTransformer& model, const AdamWOptions& options, const Device& device, MemoryLedger& ledger);

  /// Updates master weights and moments from the gradients times scale[0], and writes the compute copies,
  /// which the ranks gather. If scale[1] is 0, weights and moments stay as they are. scale [2]
  /// float32 is gradient_scale's. `update` counts the updates from 1, for the bias correction and the random
  /// bits. `before_unit`, if there is one, is called with each unit before its update is queued.
  void step(Context& context, ShardedTransformer& model, double learning_rate, int64_t update,
            const Tensor& scale, const std::function<void(size_t unit)>& before_unit = {});

  /// The moments of the shard of unit `unit` of ShardedTransformer::trained_units, [shard_elements] float32
  /// or bfloat16.
  const Tensor& first(size_t unit) const { return moments_[unit].first; }
  const Tensor& second(size_t unit) const { return moments_[unit].second; }

 private:
  /// Elements [begin, begin + count) of a shard, which one call of the kernel updates.
  struct Range {
    int64_t begin, count;
    bool decays;
    MomentBits bits;
  };
  struct Moments {
    Buffer memory;
    Tensor first, second;
    std::vector<Range> ranges;
  };
  std::vector<Range> ranges_of(const FsdpUnit& unit) const;

  AdamWOptions options_;
  std::vector<Moments> moments_;
};

}  // namespace ripstop
