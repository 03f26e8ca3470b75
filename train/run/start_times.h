#pragma once
#include <chrono>

#include "train/machine/machine.h"
#include "train/report/metrics.h"

namespace ripstop {

/// A stopwatch over the parts of a start (StartupSeconds). Exactly one part is under way at any time.
class StartTimes {
 public:
  using Part = double StartupSeconds::*;

  /// Counts the time since the process began as `program`, and begins `other`.
  StartTimes() { seconds_.program = process_age_seconds(); }

  /// Ends the part under way, and begins `part`.
  void enter(Part part) {
    const Clock::time_point now = Clock::now();
    seconds_.*part_ += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    part_ = part;
  }
  /// The times so far, and their sum as `total`.
  StartupSeconds seconds() const {
    StartTimes now = *this;
    now.enter(part_);
    StartupSeconds& s = now.seconds_;
    s.total =
        s.program + s.mpi + s.data + s.memory + s.weights + s.resume + s.other + s.first_step.value_or(0);
    return s;
  }

 private:
  using Clock = std::chrono::steady_clock;

  StartupSeconds seconds_;
  Part part_ = &StartupSeconds::other;
  Clock::time_point since_ = Clock::now();
};

}  // namespace ripstop
