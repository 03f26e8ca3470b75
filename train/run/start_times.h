// StartTimes: what a start of a run spends its time on, from the start of the process to the first step.
#pragma once
#include <chrono>
#include <string>

#include "train/report/metrics.h"

namespace ripstop {

/// A stopwatch over the parts of StartupSeconds. At each moment one part is under way.
class StartTimes {
 public:
  /// A part, as a member of StartupSeconds.
  using Part = double StartupSeconds::*;

  /// What has passed since the process began counts as `program`; from now on `other` is under way.
  StartTimes();

  /// Ends the part under way and begins `part`.
  void enter(Part part);
  /// The times so far. `total` is their sum.
  StartupSeconds seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  StartupSeconds seconds_;
  Part part_ = &StartupSeconds::other;
  Clock::time_point since_ = Clock::now();
};

/// "started in 1.92 s: program 0.10, MPI 0.41, data 0.20, memory 0.60, weights 0.11, resume 0.02, other
/// 0.05".
std::string startup_text(const StartupSeconds& seconds);

}  // namespace ripstop
