// DiskVotes: how ranks wait for each other's disks, and find one that does not answer.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// How long ranks wait for a disk on which nothing moves.
struct DiskPatience {
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<std::string> hosts = {};  ///< by rank, for the error; empty: it names ranks alone
};

/// How long a rank's disk had been still before ranks waited for it.
struct DiskStillness {
  int64_t progress = 0;  ///< the number that has not changed
  double seconds = 0;    ///< for so long
};

/// One wait of all ranks. A disk may take longer than a collective may, so ranks do not wait in one
/// collective: they vote many times a second, and each tells how far its disk is. A slow disk moves.
class DiskVotes {
 public:
  /// `world` is borrowed.
  DiskVotes(Communicator& world, DiskPatience patience);

  /// Collective, before the first vote: the patience with the disk of this rank began earlier. If the next
  /// vote tells another number, it begins then.
  void count_from(const DiskStillness& seen);

  /// Collective: whether all ranks are `done`. `progress` of this rank, at least 0, changes whenever its disk
  /// has done something. Throws Error(kCommunication), which names the ranks, if the progress of a rank that
  /// is not done has not changed for DiskPatience::seconds. Time in which this process itself was stopped
  /// does not count. Ranks throw at votes that may differ by one or two: each has a clock of its own.
  bool all_done(bool done, int64_t progress);

 private:
  using Clock = std::chrono::steady_clock;

  Communicator& world_;
  const DiskPatience patience_;
  Clock::time_point before_ = Clock::now();
  std::vector<int64_t> progress_;      ///< by rank, at the last vote; kDone
  std::vector<double> still_seconds_;  ///< by rank, since it changed
};

}  // namespace ripstop
