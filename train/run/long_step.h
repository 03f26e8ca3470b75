// LongStep: a stop request need not wait for the end of a step that takes long.
#pragma once
#include <chrono>
#include <cstdint>

#include "model/core/function_ref.h"
#include "parallel/communicator.h"

namespace ripstop {

/// How long a stop request may wait.
struct LongStepTimes {
  double vote_seconds = 5;   ///< between two votes of the ranks in a long step
  double most_seconds = 60;  ///< a step that would take longer than this from a vote on is given up
};

/// Decides between the micro-batches of a step whether to give it up. All ranks decide alike, by the clock of
/// rank 0. In a run of short steps the ranks vote once, in the first step.
class LongStep {
 public:
  explicit LongStep(Communicator& world, const LongStepTimes& times = {}) : world_(world), times_(times) {}

  /// Begins a step.
  void begin();
  /// To be called after `done` of the step's `total` micro-batches. True if a stop was requested on any rank
  /// and the rest of the step would take longer than most_seconds. `wait_for_device` returns when the device
  /// has computed what is queued. Collective, in the calls that vote.
  bool gives_up(int64_t done, int64_t total, FunctionRef<bool()> stop_requested,
                FunctionRef<void()> wait_for_device);

 private:
  using Clock = std::chrono::steady_clock;

  Communicator& world_;
  const LongStepTimes times_;
  Clock::time_point begin_;
  bool steps_are_short_ = false;
  int64_t between_votes_ = 1;  ///< micro-batches
  int64_t next_vote_ = 1;      ///< after so many micro-batches of the step
};

}  // namespace ripstop
