// The steps of a run that a profiler is to see.
#pragma once
#include <cstdint>
#include <optional>

#include "model/device/device.h"
#include "train/config/step_range.h"

namespace ripstop {

/// Lets a profiler collect while steps of a range are under way, on devices that have one. A run that resumes
/// inside of the range has the rest of it collected, one that stops there ends the collection as it goes.
class StepProfiler {
 public:
  StepProfiler(const StepRange& steps, const Device& device) : steps_(steps), device_(device) {}

  /// To be called before and after every step, with no work on the device under way.
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
