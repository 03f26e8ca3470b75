// Plans of library kernels, made before the first step.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "data/dataset/sequence_reader.h"
#include "parallel/sharded_transformer.h"
#include "train/run/step_clock.h"

namespace ripstop {

/// The number of batches with each combination of document sizes.
using DocumentCounts = std::map<DocumentSizes, int64_t>;

/// The number of coming steps whose documents get plans. Later steps make the plans that they lack.
inline constexpr int64_t kStepsLookedAt = 1000;

struct KernelPlans {
  int64_t count = 0;  ///< plans made
  int64_t left = 0;   ///< document sizes for which time did not suffice; steps make their plans
  double seconds = 0;
};

/// Makes the attention plans of `model` for the document sizes in `trained`, then in `evaluated`, of each the
/// most frequent first, for about a minute at most. Does nothing on devices that need no plans.
inline KernelPlans prepare_kernels(const ShardedTransformer& model, const DocumentCounts& trained,
                                   const DocumentCounts& evaluated) {
  // About the time that the first steps would lose if they made these plans.
  constexpr double kMostSeconds = 60;
  const auto begin = std::chrono::steady_clock::now();
  KernelPlans plans;
  const auto prepare = [&](const DocumentCounts& counts, bool backward) {
    // Equal counts are ordered by size, so all ranks have the same order.
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
