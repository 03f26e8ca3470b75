#include "train/machine/rank_speed.h"

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

// FLOP/s of this rank in matrix products. All ranks compute at once, because in a step they also share power,
// caches and memory. Collective.
double measure_products(Communicator& all, const Device& device) {
  constexpr double kRoundSeconds = 0.03;
  constexpr int64_t kMostProducts = 1000;
  TimedProduct product(device, device.kind == DeviceKind::kCuda ? DType::kBFloat16 : DType::kFloat32);
  const auto times =
      std::clamp<int64_t>(static_cast<int64_t>(kRoundSeconds / product.run(1)), 1, kMostProducts);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    all.barrier();
    best = std::max(best, static_cast<double>(product.flops() * times) / product.run(times));
  }
  return best;
}

// Bytes/s of a conversion with all threads: four bytes read and two written for each element. Collective.
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
  fill_zero(context, source);  // unwritten pages would all map to one cached page
  double best = 0;
  for (int round = 0; round <= kRounds; ++round) {
    stream.synchronize();
    all.barrier();
    const Clock::time_point begin = Clock::now();
    convert(context, source, tensor_in(to, 0, DType::kBFloat16, {elements}));
    stream.synchronize();
    // Skips the first round, in which the system allocates the pages of `to`.
    if (round > 0) best = std::max(best, 6.0 * static_cast<double>(elements) / seconds_since(begin));
  }
  return best;
}

// Exchanges messages between pairs of ranks whose numbers differ in one bit. Returns the bytes/s of this
// rank's best pair; 0 in a group of one rank. Collective.
double measure_pairs(Communicator& group) {
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
    // Every rank must call exchange equally often. A rank that is its own peer moves nothing.
    const int64_t peer = other < group.size() ? other : group.rank();
    group.exchange(stream, send, peer, receive, peer);
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kMessages; ++i) group.exchange(stream, send, peer, receive, peer);
    if (peer != group.rank())
      best = std::max(best, static_cast<double>(kMessages * kBytes) / seconds_since(begin));
  }
  return best;
}

// The messages of a rank in its ring: one to the next rank, one from the rank before.
class RingMessages {
 public:
  RingMessages(Communicator& all, Communicator& ring, const Device& device, int64_t bytes)
      : all_(all),
        ring_(ring),
        stream_(device),
        memory_(device, ledger_, MemoryCategory::kCommunication, 2 * bytes),
        bytes_(bytes) {}

  Pending start() {
    const int64_t size = ring_.size(), rank = ring_.rank();
    const Exchange one{tensor_in(memory_, 0, DType::kFloat32, {bytes_ / 4}), (rank + 1) % size,
                       tensor_in(memory_, bytes_, DType::kFloat32, {bytes_ / 4}), (rank + size - 1) % size};
    return ring_.start_exchanges(stream_, {&one, 1});
  }
  // The slowest rank's seconds for a round: the median of kRounds measurements, each long enough for the
  // clock. Equal on all ranks.
  double seconds_a_round() {
    constexpr int kFewestRounds = 2, kMostRounds = 1000;
    constexpr double kSecondsEach = 0.05;
    std::vector<double> found;
    for (int rounds = kFewestRounds; std::ssize(found) < kRounds;) {
      // A connection that was idle begins slowly, unlike the messages of a step.
      start().wait();
      stream_.synchronize();
      // Without the barrier a rank that begins late would look like a slow link.
      all_.barrier();
      const Clock::time_point begin = Clock::now();
      for (int round = 0; round < rounds; ++round) start().wait();
      stream_.synchronize();
      const double seconds = std::ranges::max(of_all_ranks(all_, seconds_since(begin)));
      if (seconds < kSecondsEach && rounds < kMostRounds)
        rounds *= 2;
      else
        found.push_back(seconds / rounds);
    }
    return median(found);
  }
  // The speed of products while messages move, as a share of their speed alone. The products outlast the
  // messages, so the time that they take longer is what the messages cost compute.
  double compute_share(const Device& device) {
    const double moving = seconds_a_round();
    TimedProduct product(device, device.kind == DeviceKind::kCuda ? DType::kBFloat16 : DType::kFloat32);
    const auto times = static_cast<int64_t>(std::clamp(1.5 * moving / product.run(1), 1.0, 1000.0)) + 1;
    std::vector<double> shares;
    for (int round = 0; round < kRounds; ++round) {
      all_.barrier();
      const double alone = product.run(times);
      all_.barrier();
      const Clock::time_point begin = Clock::now();
      Pending pending = start();
      product.run(times);
      pending.wait();
      stream_.synchronize();
      shares.push_back(1 - (seconds_since(begin) - alone) / moving);
    }
    return std::clamp(median(shares), 0.0, 1.0);
  }

 private:
  Communicator &all_, &ring_;
  Stream stream_;
  MemoryLedger ledger_;
  Buffer memory_;
  int64_t bytes_;
};

}  // namespace

std::optional<LinkRate> measure_rings(Communicator& all, int64_t color, const Device& device) {
  constexpr int64_t kSmallBytes = 8, kLargeBytes = int64_t{4} << 20;
  constexpr double kShareSeconds = 0.02;
  constexpr int64_t kLeastOfShare = int64_t{1} << 20, kMostOfShare = int64_t{1} << 26;
  const std::unique_ptr<Communicator> ring = all.split(color, all.rank(), "ring");
  const std::vector<int64_t> sizes = of_all_ranks(all, ring->size());
  if (std::ranges::max(sizes) == 1) return std::nullopt;
  LinkRate found;
  found.latency_seconds = RingMessages(all, *ring, device, kSmallBytes).seconds_a_round();
  found.bytes_per_second =
      static_cast<double>(kLargeBytes) / RingMessages(all, *ring, device, kLargeBytes).seconds_a_round();
  const auto bytes = std::clamp(static_cast<int64_t>(kShareSeconds * found.bytes_per_second) / 4 * 4,
                                kLeastOfShare, kMostOfShare);
  const std::vector<double> shares =
      of_all_ranks(all, RingMessages(all, *ring, device, bytes).compute_share(device));
  double sum = 0, ranks = 0;
  for (size_t r = 0; r < shares.size(); ++r) {
    if (sizes[r] == 1) continue;  // alone in its ring
    sum += shares[r];
    ++ranks;
  }
  found.compute_share = sum / ranks;
  return found;
}

LinkRates measure_links(MpiWorld& world, Communicator& all, const Device& device) {
  const int64_t node = world.places()[static_cast<size_t>(world.communicator().rank())].node;
  LinkRates links;
  links.inside_node = measure_rings(all, node, device);
  links.between_nodes = measure_rings(all, world.local_rank(), device);
  return links;
}

std::vector<RankSpeed> measure_ranks(MpiWorld& world, const Device& device) {
  Communicator& all = world.communicator();
  RankSpeed speed;
  speed.flops_per_second = measure_products(all, device);
  speed.memory_bytes_per_second = measure_memory(all, device);
  const int64_t node = world.places()[static_cast<size_t>(all.rank())].node;
  speed.inside_bytes_per_second = measure_pairs(*all.split(node, all.rank(), "node"));
  speed.between_bytes_per_second = measure_pairs(*all.split(world.local_rank(), all.rank(), "nodes"));
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
      if (shares[r] < kSlowShare) found.push_back({static_cast<int64_t>(r), what, shares[r]});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const SlowRankFound& a, const SlowRankFound& b) { return a.rank < b.rank; });
  return found;
}

}  // namespace ripstop
