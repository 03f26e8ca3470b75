#pragma once
#include <chrono>

#include "parallel/device_mesh.h"

namespace ripstop {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The time, the traffic and the waits of this rank's steps.
class StepClock {
 public:
  explicit StepClock(const DeviceMesh& mesh) : mesh_(mesh) {}

  void begin() {
    begin_ = Clock::now();
    sent_before_ = mesh_.bytes_sent();
    waited_before_ = mesh_.seconds_waited();
    all_waited_before_ = mesh_.seconds_waited_in_all();
  }
  void end() {
    sent_ = mesh_.bytes_sent() - sent_before_;
    waited_ = mesh_.seconds_waited() - waited_before_;
    waited_in_all_ = mesh_.seconds_waited_in_all() - all_waited_before_;
    end_ = Clock::now();
    seconds_ = std::chrono::duration<double>(end_ - begin_).count();
    smoothed_ = smoothed_ > 0 ? (1 - kSmoothing) * smoothed_ + kSmoothing * seconds_ : seconds_;
  }

  std::chrono::steady_clock::time_point begin_time() const { return begin_; }
  std::chrono::steady_clock::time_point end_time() const { return end_; }
  /// Numbers of the last finished step: its seconds, bytes sent and seconds waited on each axis, seconds
  /// waited in all groups.
  double seconds() const { return seconds_; }
  const AxisBytes& sent() const { return sent_; }
  const AxisSeconds& waited() const { return waited_; }
  double waited_in_all() const { return waited_in_all_; }
  /// A moving average over the steps; 0 before the first step.
  double smoothed_seconds() const { return smoothed_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kSmoothing = 0.05;  ///< weight of the last step in the average

  const DeviceMesh& mesh_;
  Clock::time_point begin_, end_;
  AxisBytes sent_before_, sent_;
  AxisSeconds waited_before_, waited_;
  double all_waited_before_ = 0, waited_in_all_ = 0;
  double seconds_ = 0, smoothed_ = 0;
};

}  // namespace ripstop
