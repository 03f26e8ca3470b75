// The speeds of ranks and of the links between them, for `ripstop doctor`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The measured speeds of one rank. 0: nothing to measure.
struct RankSpeed {
  /// Matrix products in bfloat16 on a GPU and float32 on a CPU, on all ranks at once.
  double flops_per_second = 0;
  /// Bytes that a kernel that hardly computes reads and writes, on all ranks at once.
  double memory_bytes_per_second = 0;
  /// Bytes sent to a rank of the same node, and of another node, while as many are received.
  double inside_bytes_per_second = 0;
  double between_bytes_per_second = 0;
};

/// Measures this rank on `device`, and its links through host memory. Each link speed is the best over
/// several peers, so that a slow rank does not slow its neighbours' numbers. Takes about a second. Returns
/// the speeds by rank, equal on all ranks. Collective.
std::vector<RankSpeed> measure_ranks(MpiWorld& world, const Device& device);

/// A rank with one speed below kSlowShare of the median.
struct SlowRankFound {
  int64_t rank = 0;
  std::string what;  ///< "products", "memory", "links inside the node", "links between nodes"
  double share = 0;  ///< of the median
  double value = 0;  ///< FLOP/s or bytes/s
};

/// All findings, by rank. Pure.
std::vector<SlowRankFound> slow_ranks_of(const std::vector<RankSpeed>& speeds);

/// The speed of a ring's slowest rank.
struct LinkSpeed {
  double latency_seconds = 0;   ///< of a message of 8 bytes
  double bytes_per_second = 0;  ///< sent by a rank while it receives as many
};

/// Measures a ring: every rank sends to the next rank of `group` and receives from the one before, first
/// small messages, then large ones. Takes about 0.1 s on good links, a few seconds at most. `group` must have
/// at least two ranks and use host memory. Collective; all ranks get equal results.
LinkSpeed measure_ring(Communicator& group);

}  // namespace ripstop
