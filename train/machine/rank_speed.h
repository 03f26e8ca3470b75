#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The measured speeds of one rank; 0 if there is nothing to measure.
struct RankSpeed {
  /// Speed of matrix products, in bfloat16 on a GPU and in float32 on a CPU, while all ranks compute.
  double flops_per_second = 0;
  /// Bytes/s read and written by a kernel with hardly any arithmetic, while all ranks compute.
  double memory_bytes_per_second = 0;
  /// Bytes/s that a rank sends, while it receives as many, to a rank of the same node (inside) and of another
  /// node (between).
  double inside_bytes_per_second = 0;
  double between_bytes_per_second = 0;
};

/// Measures this rank on `device`, and its links through host memory. A link speed is the best of several
/// peers, so that a slow rank does not slow its neighbours' numbers. Takes about a second. Returns the speeds
/// by rank, equal on all ranks. Collective.
std::vector<RankSpeed> measure_ranks(MpiWorld& world, const Device& device);

/// A rank's speed that is below kSlowShare of the median.
struct SlowRankFound {
  int64_t rank = 0;
  std::string what;  ///< "products", "memory", "links inside the node", "links between nodes"
  double share = 0;  ///< `value` divided by the median rank's speed
  double value = 0;  ///< the speed, in FLOP/s or bytes/s
};

/// The slow ranks, in rank order. Pure.
std::vector<SlowRankFound> slow_ranks_of(const std::vector<RankSpeed>& speeds);

struct LinkSpeed {
  double latency_seconds = 0;   ///< time of a message of 8 bytes
  double bytes_per_second = 0;  ///< sent by a rank while it receives as many
};

/// The speed of the slowest rank in a ring, in which every rank sends to the next rank of `group` and
/// receives from the rank before. Takes about 0.1 s on good links, a few seconds at most. `group` must have
/// at least two ranks and use host memory. Collective; equal on all ranks.
LinkSpeed measure_ring(Communicator& group);

}  // namespace ripstop
