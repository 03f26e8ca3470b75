#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/agreement.h"

namespace ripstop {

struct LongStepTimes {
  double vote_seconds = 5;   ///< time between two votes of the ranks
  double most_seconds = 60;  ///< a stop request ends a step whose rest would take longer
};

/// Between the micro-batches of a step, decides whether a stop request ends the step early. The ranks vote,
/// and rank 0's clock counts. If steps are short, the ranks vote in the first step only.
class LongStep {
 public:
  explicit LongStep(Communicator& world, const LongStepTimes& times = {}) : world_(world), times_(times) {}

  void begin() {
    begin_ = Clock::now();
    next_vote_ = between_votes_;
  }
  /// Call it after `done` of the step's `total` micro-batches. True if a stop was requested on any rank and
  /// the rest would take longer than most_seconds. `wait_for_device` waits for all queued work. Collective.
  bool gives_up(int64_t done, int64_t total, FunctionRef<bool()> stop_requested,
                FunctionRef<void()> wait_for_device) {
    if (steps_are_short_ || done < next_vote_) return false;
    wait_for_device();
    // One number carries the elapsed time and, as a minus sign, a stop request.
    const int64_t elapsed_us =
        1 + std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin_).count();
    const std::vector<int64_t> votes = of_all_ranks(world_, stop_requested() ? -elapsed_us : elapsed_us);
    const bool stops = *std::min_element(votes.begin(), votes.end()) < 0;
    const double each = 1e-6 * static_cast<double>(std::abs(votes[0])) / static_cast<double>(done);
    // All steps take about as long as the first, so the first decides.
    if (each * static_cast<double>(total) <= times_.most_seconds) steps_are_short_ = true;
    between_votes_ = std::max<int64_t>(1, static_cast<int64_t>(times_.vote_seconds / each));
    next_vote_ = done + between_votes_;
    return stops && each * static_cast<double>(total - done) > times_.most_seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Communicator& world_;
  const LongStepTimes times_;
  Clock::time_point begin_;
  bool steps_are_short_ = false;
  int64_t between_votes_ = 1;  ///< micro-batches from one vote to the next
  int64_t next_vote_ = 1;      ///< `done` at the next vote
};

}  // namespace ripstop
