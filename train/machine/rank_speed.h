#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mpi_world.h"
#include "train/machine/rates.h"

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
  double share = 0;  ///< the rank's speed divided by the median rank's
};

/// The slow ranks, in rank order. Pure.
std::vector<SlowRankFound> slow_ranks_of(const std::vector<RankSpeed>& speeds);

/// Measures the links between ranks of `all` with the same `color`, for tensors on `device`. These ranks form
/// a ring, in which each sends to the next one; all rings move messages at once. Returns the slowest rank's
/// latency (of 8 bytes) and bandwidth (of 4 MiB), medians of five measurements, and the mean of the compute
/// shares; nullopt if every ring has one rank. Takes about a second on good links, and the time of about 20
/// messages of 4 MiB on slow links. Collective; equal on all ranks.
std::optional<LinkRate> measure_rings(Communicator& all, int64_t color, const Device& device);

struct LinkRates {
  std::optional<LinkRate> inside_node, between_nodes;
};
/// measure_rings() over the ranks of each node, and over ranks with equal MpiWorld::local_rank(), one of each
/// node. Collective.
LinkRates measure_links(MpiWorld& world, Communicator& all, const Device& device);

}  // namespace ripstop
