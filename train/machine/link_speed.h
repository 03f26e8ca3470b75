// Measures the links between ranks, for `ripstop doctor`.
#pragma once
#include "parallel/communicator.h"

namespace ripstop {

/// The speed of the slowest rank of a group.
struct LinkSpeed {
  double latency_seconds = 0;   ///< of a message of 8 bytes
  double bytes_per_second = 0;  ///< that a rank sends while it receives the same number
};

/// Measures a ring: every rank sends to the next rank of `group` and receives from the one before, first
/// small messages, then large ones. Takes about 0.1 s on a good link and a few seconds at most. `group` must
/// have at least two ranks and use host memory. Collective; all ranks get equal results.
LinkSpeed measure_ring(Communicator& group);

}  // namespace ripstop
