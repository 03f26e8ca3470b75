#include "train/step/adamw.h"

#include <utility>

namespace ripstop {

AdamW::AdamW(ShardedTransformer& model, const AdamWOptions& options, const Device& device,
             MemoryLedger& ledger)
    : options_(options) {
  for (const FsdpUnit& unit : model.units()) {
    const int64_t n = unit.master().count();
    // Both moments of a unit lie in one buffer: 4 bytes each an element.
    Buffer memory(device, ledger, MemoryCategory::kOptimizer, 8 * n);
    const Tensor first = tensor_in(memory, 0, DType::kFloat32, {n});
    const Tensor second = tensor_in(memory, 4 * n, DType::kFloat32, {n});
    moments_.push_back({std::move(memory), first, second});
  }
}

void AdamW::step(Context& context, ShardedTransformer& model, double learning_rate, int64_t update,
                 const Tensor& scale) {
  for (size_t u = 0; u < moments_.size(); ++u) {
    FsdpUnit& unit = model.units()[u];
    const auto update_elements = [&](int64_t begin, int64_t count, double decay) {
      const AdamWStep numbers{.learning_rate = learning_rate,
                              .beta1 = options_.beta1,
                              .beta2 = options_.beta2,
                              .epsilon = options_.epsilon,
                              .weight_decay = decay,
                              .step = update};
      const Tensor copy =
          unit.compute_copy().empty() ? Tensor{} : unit.compute_copy().row_range(begin, count);
      adamw(context, numbers, scale, unit.gradient().row_range(begin, count),
            unit.master().row_range(begin, count), moments_[u].first.row_range(begin, count),
            moments_[u].second.row_range(begin, count), copy);
    };
    // The replicated parameters are exactly the vectors (norms), and they come first in the unit. So one cut
    // separates the weights without decay from those with decay.
    const int64_t vectors = unit.replicated_in_shard();
    update_elements(0, vectors, options_.decay_norms ? options_.weight_decay : 0.0);
    update_elements(vectors, unit.master().count() - vectors, options_.weight_decay);
    unit.weights_changed();
  }
}

}  // namespace ripstop
