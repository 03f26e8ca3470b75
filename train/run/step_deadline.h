// StepDeadline: how long a collective of a run may wait, learned from the run's own steps.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace ripstop {

/// The deadline of run.deadline_seconds. A number holds everywhere. "auto" is 600 s where nothing can be
/// learned: at the start, in saves and in validations that write summaries, whose ranks may come minutes
/// apart. In a step no rank waits longer than the slowest rank's step takes, so there it is
///
///   max(60 s, 3 x the second longest of the last 50 steps)
///
/// from the third of them on. The longest does not count, so that one step in which the whole job was
/// suspended changes nothing; three times, so that a node may become three times slower and is named, not
/// ended.
class StepDeadline {
 public:
  static constexpr double kLeastSeconds = 60, kUnlearnedSeconds = 600, kTimesStep = 3;
  static constexpr int64_t kSteps = 50, kFirstSteps = 3;

  /// `given`: run.deadline_seconds; nullopt: "auto".
  explicit StepDeadline(std::optional<int64_t> given) : given_(given) {}

  /// Learns from a step that took `seconds`. Not for the first step of a start, which fills buffers and makes
  /// kernels.
  void learn(double seconds);

  double in_step() const;
  double outside_steps() const;

 private:
  std::optional<int64_t> given_;
  std::vector<double> seconds_;  ///< of the last kSteps steps, a ring
  int64_t learned_ = 0;
};

}  // namespace ripstop
