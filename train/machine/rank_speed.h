// The speed of each rank's device, memory and links, for `ripstop doctor`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// Measured speeds of one rank. 0: nothing to measure.
struct RankSpeed {
  /// Matrix products in bfloat16 on a GPU and float32 on a CPU, on all ranks at once.
  double flops_per_second = 0;
  /// Read and written on the device by a kernel that hardly computes, likewise.
  double memory_bytes_per_second = 0;
  /// Sent to a rank of the same node while as much is received; and to one of another node.
  double inside_bytes_per_second = 0;
  double between_bytes_per_second = 0;
};

/// Measures this rank on `device`, and its links through host memory: each with several ranks in turn, of
/// which the fastest counts, so that a slow rank does not slow its neighbours' numbers. Takes about a
/// second. By rank, equal on all ranks. Collective.
std::vector<RankSpeed> measure_ranks(MpiWorld& world, const Device& device);

/// One rank that is slower than kSlowShare of the median in something.
struct SlowRankFound {
  int64_t rank = 0;
  std::string what;  ///< "products", "memory", "links inside the node", "links between nodes"
  double share = 0;  ///< of the median
  double value = 0;  ///< FLOP/s or bytes/s
};

/// All of them, by rank. Pure.
std::vector<SlowRankFound> slow_ranks_of(const std::vector<RankSpeed>& speeds);

}  // namespace ripstop
