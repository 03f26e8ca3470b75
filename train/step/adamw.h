#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "model/ops/ops.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  bool decay_norms = false;         ///< vectors (norms and biases) have weight decay, too
  DType moments = DType::kFloat32;  ///< dtype of both stored moments: float32 or bfloat16
  uint64_t seed = 0;                ///< seed of the random bits that round bfloat16 moments
};

/// The MomentBits::key of a parameter: half a Philox block of the hash of its name, with `seed` as key.
uint64_t moment_key(uint64_t seed, std::string_view parameter);

/// AdamW over this rank's shard of every trained unit. Owns the moments, zero at first (category optimizer, 8
/// bytes an element, 4 if bfloat16). bfloat16 moments are computed in float32 and rounded stochastically. The
/// random bits depend only on seed, update, moment, parameter and logical element, so ranks that hold the
/// same element keep the same moments. Source: decoupled weight decay, arXiv:1711.05101; the order of
/// operations is torch.optim.AdamW's. How to add an optimizer: CONTRIBUTING.md, "Add anything else".
class AdamW {
 public:
  AdamW(ShardedTransformer& model, const AdamWOptions& options, const Device& device, MemoryLedger& ledger);

  /// Updates master weights and moments from the gradients times scale[0], and writes the compute copies. If
  /// scale[1] is 0, weights and moments stay as they are. `scale`: [2] float32, from gradient_scale. `update`
  /// counts from 1, for the bias correction and the random bits. `before_unit`, if set, is called with the
  /// index of each unit before its update is queued.
  void step(Context& context, ShardedTransformer& model, double learning_rate, int64_t update,
            const Tensor& scale, const std::function<void(size_t unit)>& before_unit = {});

  /// The moments of unit `unit` of ShardedTransformer::trained_units: [shard_elements] float32 or bfloat16.
  const Tensor& first(size_t unit) const { return moments_[unit].first; }
  const Tensor& second(size_t unit) const { return moments_[unit].second; }

 private:
  /// Elements [begin, begin + count) of a shard, updated by one kernel call.
  struct Range {
    int64_t begin, count;
    bool decays;
    MomentBits bits;
  };
  struct Moments {
    Buffer memory;  ///< holds both moments
    Tensor first, second;
    std::vector<Range> ranges;
  };
  std::vector<Range> ranges_of(const FsdpUnit& unit) const;

  AdamWOptions options_;
  std::vector<Moments> moments_;
};

}  // namespace ripstop
