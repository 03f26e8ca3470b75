// How fast ranks talk: a small measurement for `ripstop doctor`.
#pragma once
#include "parallel/communicator.h"

namespace ripstop {

/// What one rank saw, the slowest of the group.
struct LinkSpeed {
  double latency_seconds = 0;   ///< of a message of 8 bytes
  double bytes_per_second = 0;  ///< that a rank sends while it receives as many
};

/// Every rank sends to the next of `group` and receives from the one before, small messages and then large
/// ones; takes about a tenth of a second on a good link, and never more than a few seconds. All ranks of the
/// group call; all get equal results. The group has at least two ranks and host memory.
LinkSpeed measure_ring(Communicator& group);

}  // namespace ripstop
