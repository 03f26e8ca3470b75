#include "train/config/step_range.h"

#include <optional>

#include "model/core/error.h"
#include "model/core/number.h"

namespace ripstop {

StepRange parse_step_range(std::string_view text) {
  if (text.empty()) return {};
  const size_t dash = text.find('-');
  const auto first = parse_whole_number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? std::nullopt : parse_whole_number(text.substr(dash + 1));
  if (!first || !last)
    fail(ExitCode::kUsage, "'run.profile_steps' must be first-last, as in \"10-12\", got \"{}\"", text);
  if (*first < 1) fail(ExitCode::kUsage, "'run.profile_steps' begins at step {}, steps begin at 1", *first);
  if (*last < *first)
    fail(ExitCode::kUsage, "'run.profile_steps' ends at step {}, before it begins at step {}", *last, *first);
  return {*first, *last};
}

}  // namespace ripstop
