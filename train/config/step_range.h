// A range of steps, for run.profile_steps.
#pragma once
#include <cstdint>
#include <string_view>

namespace ripstop {

/// The steps from `first` to `last`, counted from 1; no steps if last < first.
struct StepRange {
  int64_t first = 1, last = 0;
  bool operator==(const StepRange&) const = default;
};

/// Parses run.profile_steps: "10-12", or "" for no steps. Throws Error(kUsage) if the text is neither, or if
/// the range begins before step 1 or ends before it begins.
StepRange parse_step_range(std::string_view text);

}  // namespace ripstop
