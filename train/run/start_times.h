// StartTimes: where the time of a start goes, from the start of the process to the first step.
#pragma once
#include <chrono>

#include "train/machine/machine.h"
#include "train/report/metrics.h"

namespace ripstop {

/// A stopwatch over the parts of StartupSeconds. At each moment one part is under way.
class StartTimes {
 public:
  /// A part, as a member of StartupSeconds.
  using Part = double StartupSeconds::*;

  /// The time since the process began counts as `program`; from now on `other` is under way.
  StartTimes() { seconds_.program = process_age_seconds(); }

  /// Ends the part under way and begins `part`.
  void enter(Part part) {
    const Clock::time_point now = Clock::now();
    seconds_.*part_ += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    part_ = part;
  }
  /// The times so far. `total` is their sum.
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
