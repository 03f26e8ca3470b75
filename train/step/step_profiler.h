#pragma once
#include <cstdint>
#include <optional>

#include "model/device/device.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Lets a profiler collect the steps of run.profile_steps, on devices that have a profiler. A run that
/// resumes inside the range collects the rest; a run that stops inside the range ends the collection.
class StepProfiler {
 public:
  StepProfiler(const StepRange& steps, const Device& device) : steps_(steps), device_(device) {}

  /// Call before() and after() around every step, while the device has no work.
  void before(int64_t step) {
    if (!stretch_ && step >= steps_.first && step <= steps_.last) stretch_.emplace(device_);
  }
  void after(int64_t step) {
    if (step >= steps_.last) stretch_.reset();
  }

 private:
  StepRange steps_;
  Device device_;
  std::optional<ProfiledStretch> stretch_;
};

}  // namespace ripstop
