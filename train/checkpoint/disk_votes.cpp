#include "train/checkpoint/disk_votes.h"

#include <algorithm>
#include <utility>

#include "model/core/error.h"
#include "parallel/agreement.h"
#include "parallel/rank_names.h"

namespace ripstop {
namespace {

constexpr int64_t kDone = -1;

}  // namespace

DiskVotes::DiskVotes(Communicator& world, DiskPatience patience)
    : world_(world), patience_(std::move(patience)), ranks_(static_cast<size_t>(world.size())) {}

void DiskVotes::count_from(const DiskStillness& seen) {
  ranks_ = of_all_ranks(world_, seen);
}

bool DiskVotes::all_done(bool done, int64_t progress) {
  const std::vector<int64_t> numbers = of_all_ranks(world_, done ? kDone : progress);
  // A longer gap between votes counts as one second: some rank, perhaps this one, may have been stopped.
  constexpr double kMostGap = 1;
  const Clock::time_point now = Clock::now();
  const double gap = std::min(std::chrono::duration<double>(now - before_).count(), kMostGap);
  before_ = now;
  std::vector<int64_t> still;
  bool all = true;
  for (size_t r = 0; r < numbers.size(); ++r) {
    auto& [before, seconds] = ranks_[r];
    all = all && numbers[r] == kDone;
    if (std::exchange(before, numbers[r]) != numbers[r] || numbers[r] == kDone)
      seconds = 0;
    else if ((seconds += gap) > patience_.seconds)
      still.push_back(static_cast<int64_t>(r));
  }
  if (!still.empty())
    throw Error(
        ExitCode::kCommunication,
        fmt::format("{} wrote nothing for {:.0f} s in a save: the storage there does not answer",
                    patience_.hosts.empty() ? ranks_text(still) : ranks_and_hosts(still, patience_.hosts),
                    patience_.seconds),
        "see the mounts of those nodes and the file server; run the same command again to go on from "
        "the last checkpoint");
  return all;
}

}  // namespace ripstop
