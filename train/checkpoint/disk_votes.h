#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

struct DiskPatience {
  double seconds = std::numeric_limits<double>::infinity();  ///< longest time without progress
  std::vector<std::string> hosts = {};                       ///< host of each rank, for errors; may be empty
};

/// The progress of a rank's disk, and for how long it has stood still.
struct DiskStillness {
  int64_t progress = 0;
  double seconds = 0;  ///< time since `progress` last changed
};

/// Lets all ranks wait for each other's disks, and finds a disk that does not answer. A disk may take longer
/// than the deadline of a collective, so the ranks vote again and again, with the progress of their disks.
class DiskVotes {
 public:
  /// `world` is borrowed.
  DiskVotes(Communicator& world, DiskPatience patience);

  /// Call it before the first vote. If the first vote still has the progress `seen.progress`, this rank's
  /// time without progress begins at `seen.seconds`, not at 0. Collective.
  void count_from(const DiskStillness& seen);

  /// Votes, and returns whether all ranks are `done`. `progress` of this rank, at least 0, must change
  /// whenever its disk has done something. Throws Error(kCommunication), naming the ranks, if the progress of
  /// a rank that is not done has not changed for DiskPatience::seconds; time in which a process was stopped
  /// counts as 1 s at most. Each rank uses its own clock, so ranks may throw at different votes. Collective.
  bool all_done(bool done, int64_t progress);

 private:
  using Clock = std::chrono::steady_clock;

  Communicator& world_;
  const DiskPatience patience_;
  Clock::time_point before_ = Clock::now();
  std::vector<DiskStillness> ranks_;  ///< each rank at the last vote; progress kDone: the rank is done
};

}  // namespace ripstop
