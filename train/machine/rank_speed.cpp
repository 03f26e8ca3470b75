#include "train/machine/rank_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "model/device/arena.h"
#include "model/device/tensor.h"
#include "model/ops/ops.h"
#include "model/ops/tensor_axis.h"
#include "parallel/agreement.h"
#include "train/machine/slow_ranks.h"
#include "train/machine/timed_product.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;

double seconds_since(Clock::time_point begin) {
  return std::max(std::chrono::duration<double>(Clock::now() - begin).count(), 1e-9);
}

// All ranks compute at once, as in a step: they share power, caches and memory.
double measure_products(Communicator& all, const Device& device) {
  constexpr double kRoundSeconds = 0.03;
  constexpr int64_t kMostProducts = 1000;
  TimedProduct product(device, device.kind == DeviceKind::kCuda ? DType::kBFloat16 : DType::kFloat32);
  product.run(1);  // makes the kernel
  const double once = 1e-9 * static_cast<double>(product.run(1));
  const auto times = std::clamp<int64_t>(static_cast<int64_t>(kRoundSeconds / once), 1, kMostProducts);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    all.barrier();
    best = std::max(
        best, 1e9 * static_cast<double>(product.flops() * times) / static_cast<double>(product.run(times)));
  }
  return best;
}

// A conversion reads four bytes and writes two of each element, with all threads.
double measure_memory(Communicator& all, const Device& device) {
  const int64_t elements = int64_t{1} << (device.kind == DeviceKind::kCuda ? 27 : 23);
  const Stream stream(device);
  const WholeAxis axis;
  MemoryLedger ledger;
  const Buffer from(device, ledger, MemoryCategory::kWorkspace, 4 * elements),
      to(device, ledger, MemoryCategory::kWorkspace, 2 * elements);
  Arena arena(device, ledger, MemoryUse{});
  Context context{stream, arena, axis};
  const Tensor source = tensor_in(from, 0, DType::kFloat32, {elements});
  // Fresh pages are all one page, which would stay in the cache: write them.
  fill_zero(context, source);
  double best = 0;
  for (int round = 0; round <= kRounds; ++round) {
    stream.synchronize();
    all.barrier();
    const Clock::time_point begin = Clock::now();
    convert(context, source, tensor_in(to, 0, DType::kBFloat16, {elements}));
    stream.synchronize();
    // The first round takes the pages of `to`.
    if (round > 0) best = std::max(best, 6.0 * static_cast<double>(elements) / seconds_since(begin));
  }
  return best;
}

// Pairs of ranks exchange messages: those whose numbers differ in one bit. 0 if the group has one rank.
double measure_links(Communicator& group) {
  constexpr int64_t kBytes = int64_t{4} << 20;
  constexpr int kMessages = 8, kMostPairs = 6;
  const Stream stream(Device::cpu());
  MemoryLedger ledger;
  const Buffer memory(Device::cpu(), ledger, MemoryCategory::kCommunication, 2 * kBytes);
  const Tensor send = tensor_in(memory, 0, DType::kFloat32, {kBytes / 4}),
               receive = tensor_in(memory, kBytes, DType::kFloat32, {kBytes / 4});
  double best = 0;
  int64_t bit = 1;
  for (int pair = 0; pair < kMostPairs && bit < group.size(); ++pair, bit *= 2) {
    group.barrier();
    const int64_t other = group.rank() ^ bit;
    // All ranks of a group make equally many exchanges: one with itself moves nothing.
    const int64_t peer = other < group.size() ? other : group.rank();
    group.exchange(stream, send, peer, receive, peer);
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kMessages; ++i) group.exchange(stream, send, peer, receive, peer);
    if (peer != group.rank())
      best = std::max(best, static_cast<double>(kMessages * kBytes) / seconds_since(begin));
  }
  return best;
}

}  // namespace

std::vector<RankSpeed> measure_ranks(MpiWorld& world, const Device& device) {
  Communicator& all = world.communicator();
  RankSpeed speed;
  speed.flops_per_second = measure_products(all, device);
  speed.memory_bytes_per_second = measure_memory(all, device);
  const int64_t node = world.places()[static_cast<size_t>(all.rank())].node;
  speed.inside_bytes_per_second = measure_links(*all.split(node, all.rank(), "node"));
  // Ranks with the same place in their nodes: all of them are on different nodes.
  speed.between_bytes_per_second = measure_links(*all.split(world.local_rank(), all.rank(), "nodes"));
  return of_all_ranks(all, speed);
}

std::vector<SlowRankFound> slow_ranks_of(const std::vector<RankSpeed>& speeds) {
  std::vector<SlowRankFound> found;
  for (const auto& [what, member] :
       {std::pair{"products", &RankSpeed::flops_per_second},
        std::pair{"memory", &RankSpeed::memory_bytes_per_second},
        std::pair{"links inside the node", &RankSpeed::inside_bytes_per_second},
        std::pair{"links between nodes", &RankSpeed::between_bytes_per_second}}) {
    std::vector<double> values;
    for (const RankSpeed& each : speeds) values.push_back(each.*member);
    const std::vector<double> shares = relative_to_median(values);
    for (size_t r = 0; r < shares.size(); ++r)
      if (shares[r] < kSlowShare) found.push_back({static_cast<int64_t>(r), what, shares[r], values[r]});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const SlowRankFound& a, const SlowRankFound& b) { return a.rank < b.rank; });
  return found;
}

}  // namespace ripstop
