#include "train/run/long_step.h"

#include <algorithm>

#include "parallel/agreement.h"

namespace ripstop {

void LongStep::begin() {
  begin_ = Clock::now();
  next_vote_ = between_votes_;
}

bool LongStep::gives_up(int64_t done, int64_t total, FunctionRef<bool()> stop_requested,
                        FunctionRef<void()> wait_for_device) {
  if (steps_are_short_ || done < next_vote_) return false;
  wait_for_device();
  // One exchange for both: rank 0's time, and whether a stop was requested, which makes a number negative.
  const int64_t elapsed_us =
      1 + std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin_).count();
  const std::vector<int64_t> votes = all_gather_number(world_, stop_requested() ? -elapsed_us : elapsed_us);
  const bool stops = std::any_of(votes.begin(), votes.end(), [](int64_t vote) { return vote < 0; });
  const double each = 1e-6 * static_cast<double>(std::max(votes[0], -votes[0])) / static_cast<double>(done);
  // Steps are alike: what the first one tells holds for all.
  if (each * static_cast<double>(total) <= times_.most_seconds) steps_are_short_ = true;
  between_votes_ = std::max<int64_t>(1, static_cast<int64_t>(times_.vote_seconds / each));
  next_vote_ = done + between_votes_;
  return stops && each * static_cast<double>(total - done) > times_.most_seconds;
}

}  // namespace ripstop
