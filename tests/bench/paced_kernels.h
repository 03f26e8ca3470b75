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
    owed_ += std::chrono::duration<double>(clock_.kernel_seconds(work));
    if (owed_ < std::chrono::milliseconds(1)) return;  // a sleep takes 0.1 ms more
    const Clock::time_point begin = Clock::now();
    std::this_thread::sleep_for(owed_);
    owed_ -= Clock::now() - begin;  // below 0: slept too long, which shortens the next
  }

 private:
  PlannedClock clock_;
  std::chrono::duration<double> owed_{0};
};

}  // namespace ripstop
