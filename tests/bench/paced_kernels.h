// A paced rank: kernels that compute nothing and wait for as long as the model of time says they take, on a
// machine of made rates. So a machine of few cores has many ranks with a time of their own each; their
// messages are real.
#pragma once
#include <chrono>
#include <thread>

#include "train/plan/step_time.h"

namespace ripstop {

class PacedKernels final : public KernelObserver {
 public:
  /// `rates` is borrowed.
  explicit PacedKernels(const Rates& rates) : clock_(rates, kMeshOfOne, 0, DeviceKind::kCpu) {}

  void run(const KernelWork& work, FunctionRef<void()>) override {
    using Clock = std::chrono::steady_clock;
    const double seconds = clock_.kernel_seconds(work);
    seconds_ += seconds;
    owed_ += std::chrono::duration<double>(seconds);
    if (owed_ < std::chrono::milliseconds(1)) return;  // a sleep takes 0.1 ms more
    const Clock::time_point begin = Clock::now();
    std::this_thread::sleep_for(owed_);
    owed_ -= Clock::now() - begin;  // below 0: slept too long, which shortens the next
  }

  /// The seconds of all kernels so far.
  double seconds() const { return seconds_; }

 private:
  PlannedClock clock_;
  std::chrono::duration<double> owed_{0};
  double seconds_ = 0;
};

}  // namespace ripstop
