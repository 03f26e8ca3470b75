#include "train/run/kernel_plans.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "train/run/step_clock.h"

namespace ripstop {

KernelPlans prepare_kernels(const ShardedTransformer& model, const DocumentCounts& trained,
                            const DocumentCounts& evaluated) {
  // About the time that the first steps would lose to these plans.
  constexpr double kMostSeconds = 60;
  const auto begin = std::chrono::steady_clock::now();
  KernelPlans plans;
  const auto prepare = [&](const DocumentCounts& counts, bool backward) {
    // Most frequent first. Equal counts are ordered by size, so all ranks have the same order.
    std::vector<std::pair<int64_t, DocumentSizes>> sorted;
    for (const auto& [sizes, batches] : counts) sorted.emplace_back(-batches, sizes);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [batches, sizes] : sorted) {
      if (plans.seconds > kMostSeconds)
        ++plans.left;
      else
        plans.count += model.prepare_attention(sizes.count, sizes.longest, backward);
      plans.seconds = seconds_since(begin);
    }
  };
  prepare(trained, /*backward=*/true);
  prepare(evaluated, /*backward=*/false);
  return plans;
}

}  // namespace ripstop
