// A range of steps, as run.profile_steps gives it.
#pragma once
#include <cstdint>
#include <string_view>

namespace ripstop {

/// Steps first to last, counted from 1; none where last < first.
struct StepRange {
  int64_t first = 1, last = 0;
  bool operator==(const StepRange&) const = default;
};

/// run.profile_steps: "10-12", or empty for none. Throws Error(kUsage), saying what is wrong, where it is
/// neither, begins before step 1 or ends before it begins.
StepRange parse_step_range(std::string_view text);

}  // namespace ripstop
