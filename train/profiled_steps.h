// The steps of a run that a profiler is to see.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "model/device/device.h"

namespace ripstop {

/// Steps first to last, counted from 1; none where last < first.
struct StepRange {
  std::int64_t first = 1, last = 0;
  bool operator==(const StepRange&) const = default;
};

/// run.profile_steps: "10-12", or empty for none. Throws Error(kUsage), saying what is wrong, where it is
/// neither, begins before step 1 or ends before it begins.
StepRange parse_step_range(std::string_view text);

/// Lets a profiler collect while steps of a range are under way, on devices that have one. A run that resumes
/// inside of the range has the rest of it collected, one that stops there ends the collection as it goes.
class StepProfiler {
 public:
  StepProfiler(const StepRange& steps, const Device& device) : steps_(steps), device_(device) {}

  /// To be called before and after every step, with no work on the device under way.
  void before(std::int64_t step) {
    if (!stretch_ && step >= steps_.first && step <= steps_.last) stretch_.emplace(device_);
  }
  void after(std::int64_t step) {
    if (step >= steps_.last) stretch_.reset();
  }

 private:
  StepRange steps_;
  Device device_;
  std::optional<ProfiledStretch> stretch_;
};

}  // namespace ripstop
