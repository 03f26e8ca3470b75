#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

namespace ripstop {

/// The deadline of collectives, from run.deadline_seconds. "auto" is 600 s outside of steps (at the start, in
/// saves, and in validations that write summaries), because ranks may come minutes apart there. In steps,
/// "auto" is 600 s, too, until three steps are known; then
///
///   max(60 s, 3 x the second longest of the last 50 steps)
///
/// The second longest step counts, so that one step in which the job was suspended changes nothing. The
/// factor is three, so that a node that becomes twice as slow is reported and does not end the run.
class StepDeadline {
 public:
  /// `given`: run.deadline_seconds; nullopt: "auto".
  explicit StepDeadline(std::optional<int64_t> given) : given_(given) {}

  /// Learns from a step. Leave out the first step of a start, which fills buffers and makes kernels.
  void learn(double seconds) {
    seconds_.push_back(seconds);
    if (seconds_.size() > kSteps) seconds_.pop_front();
  }

  /// The deadline of collectives in a step, in seconds.
  double in_step() const {
    if (given_ || seconds_.size() < kFirstSteps) return outside_steps();
    std::deque<double> seconds = seconds_;
    std::nth_element(seconds.begin(), seconds.begin() + 1, seconds.end(), std::greater<>());
    return std::max(60.0, 3 * seconds[1]);
  }
  /// The deadline of collectives outside of steps, in seconds.
  double outside_steps() const { return given_ ? static_cast<double>(*given_) : 600; }

 private:
  static constexpr size_t kSteps = 50, kFirstSteps = 3;

  std::optional<int64_t> given_;
  std::deque<double> seconds_;  ///< times of the last kSteps steps
};

}  // namespace ripstop
