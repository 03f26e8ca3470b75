// DiskVotes: ranks wait for each other's disks, and find a disk that does not answer.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// The limit of a wait for a disk without progress.
struct DiskPatience {
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<std::string> hosts = {};  ///< by rank, for the error; empty: the error names ranks alone
};

/// The time that a rank's disk had made no progress before the ranks began to wait.
struct DiskStillness {
  int64_t progress = 0;  ///< the progress that has not changed
  double seconds = 0;    ///< since its last change
};

/// One wait of all ranks. A disk may take longer than the deadline of a collective, so ranks do not wait in
/// one collective: they vote many times a second, and each tells its disk's progress.
class DiskVotes {
 public:
  /// `world` is borrowed.
  DiskVotes(Communicator& world, DiskPatience patience);

  /// Before the first vote: counts the stillness of this rank's disk from an earlier time. The count begins
  /// anew if the next vote tells another progress. Collective.
  void count_from(const DiskStillness& seen);

  /// A vote: whether all ranks are `done`. `progress` of this rank, at least 0, changes whenever its disk has
  /// done something. Throws Error(kCommunication), naming the ranks, if the progress of a rank that is not
  /// done has not changed for DiskPatience::seconds, without the time in which this process was stopped. Each
  /// rank has a clock of its own, so ranks may throw one or two votes apart. Collective.
  bool all_done(bool done, int64_t progress);

 private:
  using Clock = std::chrono::steady_clock;

  Communicator& world_;
  const DiskPatience patience_;
  Clock::time_point before_ = Clock::now();
  std::vector<int64_t> progress_;      ///< by rank, at the last vote; kDone for ranks that are done
  std::vector<double> still_seconds_;  ///< by rank, since its progress changed
};

}  // namespace ripstop
