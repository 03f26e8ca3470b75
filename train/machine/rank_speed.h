// The speeds of ranks and of the links between them, for `ripstop doctor`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The measured speeds of one rank. A speed is 0 if there is nothing to measure.
struct RankSpeed {
  /// FLOP/s of matrix products, in bfloat16 on a GPU and in float32 on a CPU, while all ranks compute.
  double flops_per_second = 0;
  /// Bytes/s that a kernel with hardly any arithmetic reads and writes, while all ranks compute.
  double memory_bytes_per_second = 0;
  /// Bytes/s sent to a rank of the same node (inside) and of another node (between), while as many are
  /// received.
  double inside_bytes_per_second = 0;
  double between_bytes_per_second = 0;
};

/// Measures this rank on `device`, and its links through host memory. Each link speed is the best over
/// several peers, so that a slow rank does not slow its neighbours' numbers. Takes about a second. Returns
/// the speeds by rank, equal on all ranks. Collective.
std::vector<RankSpeed> measure_ranks(MpiWorld& world, const Device& device);

/// A speed of a rank that is below kSlowShare of the median.
struct SlowRankFound {
  int64_t rank = 0;
  std::string what;  ///< "products", "memory", "links inside the node", "links between nodes"
  double share = 0;  ///< `value` as a multiple of the median rank's
  double value = 0;  ///< the speed, in FLOP/s or bytes/s
};

/// The speeds in `speeds` that are below kSlowShare of their median, ordered by rank. Pure.
std::vector<SlowRankFound> slow_ranks_of(const std::vector<RankSpeed>& speeds);

/// The speed of the slowest rank in a ring.
struct LinkSpeed {
  double latency_seconds = 0;   ///< time of a message of 8 bytes
  double bytes_per_second = 0;  ///< bytes that a rank sends in a second while it receives as many
};

/// Measures a ring: every rank sends to the next rank of `group` and receives from the one before, first
/// small messages, then large ones. Takes about 0.1 s on good links, a few seconds at most. `group` must have
/// at least two ranks and use host memory. Collective; all ranks get equal results.
LinkSpeed measure_ring(Communicator& group);

}  // namespace ripstop
