#include "train/run/kernel_plans.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

// A minute is about as much as the first steps of a run would lose to these plans, one after another.
constexpr double kMostSeconds = 60;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The most frequent first; the order of equals is the same on every rank.
std::vector<DocumentSizes> by_frequency(const DocumentCounts& counts) {
  std::vector<std::pair<int64_t, DocumentSizes>> sorted;
  for (const auto& [sizes, batches] : counts) sorted.emplace_back(-batches, sizes);
  std::sort(sorted.begin(), sorted.end());
  std::vector<DocumentSizes> result;
  for (const auto& each : sorted) result.push_back(each.second);
  return result;
}

}  // namespace

KernelPlans prepare_kernels(const ShardedTransformer& model, const DocumentCounts& trained,
                            const DocumentCounts& evaluated) {
  const Clock::time_point begin = Clock::now();
  KernelPlans plans;
  const auto prepare = [&](const DocumentCounts& counts, bool backward) {
    for (const DocumentSizes& sizes : by_frequency(counts)) {
      if (seconds_since(begin) > kMostSeconds)
        ++plans.left;
      else
        plans.count += model.prepare_attention(sizes.count, sizes.longest, backward);
    }
  };
  prepare(trained, /*backward=*/true);
  prepare(evaluated, /*backward=*/false);
  plans.seconds = seconds_since(begin);
  return plans;
}

}  // namespace ripstop
