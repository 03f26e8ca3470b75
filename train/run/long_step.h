#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/core/function_ref.h"
#include "model/device/device.h"
#include "parallel/communicator.h"
#include "parallel/pipeline_schedule.h"

namespace ripstop {

struct LongStepTimes {
  double vote_seconds = 5;   ///< time between two votes of the ranks
  double most_seconds = 60;  ///< a stop request ends a step whose rest would take longer
};

/// Between the micro-batches of a step, decides whether a stop request ends the step early. The ranks vote,
/// and rank 0's clock counts. A vote that finds the steps short is the last. A vote ends
/// micro_batches_of_vote() micro-batches after its start, because ranks of a pipeline are at different ones.
class LongStep {
 public:
  /// `world`: all ranks of the mesh. `stages`: ranks of its pipeline axis.
  explicit LongStep(Communicator& world, int64_t stages = 1, const LongStepTimes& times = {})
      : world_(world), stages_(stages), times_(times), votes_(static_cast<size_t>(world.size())) {}

  void begin() {
    begin_ = Clock::now();
    next_vote_ = between_votes_;
  }
  /// Call it after `done` of the step's `total` micro-batches. True when a vote ends, if any rank voted to
  /// stop and the rest would take longer than most_seconds. `wait_for_device` waits for all queued work.
  /// Collective: the votes travel in host memory, beside the messages of the mesh.
  bool gives_up(int64_t done, int64_t total, FunctionRef<bool()> stop_requested,
                FunctionRef<void()> wait_for_device) {
    const int64_t lag = micro_batches_of_vote(stages_);
    if (!voted_after_ && !steps_are_short_ && done >= next_vote_ && done + lag < total) {
      wait_for_device();
      start_vote(stop_requested);
      voted_after_ = done;
    }
    return voted_after_ && done == *voted_after_ + lag && end_vote(done, total);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void start_vote(FunctionRef<bool()> stop_requested) {
    // One number carries the elapsed time, above 0, and, as a minus sign, a stop request.
    const double elapsed = 1e-6 + std::chrono::duration<double>(Clock::now() - begin_).count();
    const Tensor all{votes_.data(), DType::kFloat64, {world_.size()}, Device::cpu()};
    const Tensor own = all.row_range(world_.rank(), 1);
    votes_[static_cast<size_t>(world_.rank())] = stop_requested() ? -elapsed : elapsed;
    vote_ = world_.all_gather(host_, own, all);
  }
  bool end_vote(int64_t done, int64_t total) {
    vote_.wait();
    const bool stops = std::ranges::min(votes_) < 0;
    // The first micro-batch goes through the whole pipeline, so it takes as long as stages_ later ones.
    const auto seconds_each = std::abs(votes_[0]) / static_cast<double>(*voted_after_ + stages_ - 1);
    const auto seconds_of = [&](int64_t micro_batches) {
      return seconds_each * static_cast<double>(micro_batches);
    };
    // All steps take about as long as this one, so this vote decides for all.
    if (seconds_of(total + stages_ - 1) <= times_.most_seconds) steps_are_short_ = true;
    between_votes_ = std::max<int64_t>(1, static_cast<int64_t>(times_.vote_seconds / seconds_each));
    next_vote_ = *voted_after_ + between_votes_;
    voted_after_.reset();
    return stops && seconds_of(total - done) > times_.most_seconds;
  }

  Communicator& world_;
  const int64_t stages_;
  const LongStepTimes times_;
  Clock::time_point begin_;
  bool steps_are_short_ = false;
  int64_t between_votes_ = 1;           ///< micro-batches from one vote to the next
  int64_t next_vote_ = 1;               ///< `done` at the next vote
  std::optional<int64_t> voted_after_;  ///< `done` at the start of the vote under way
  const Stream host_{Device::cpu()};
  std::vector<double> votes_;  ///< votes of all ranks; outlives vote_
  Pending vote_;
};

}  // namespace ripstop
