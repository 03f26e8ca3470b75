#include "train/profiled_steps.h"

#include <charconv>

#include "model/error.h"

namespace ripstop {
namespace {

// The number that all of `text` is, if it is one: digits alone.
std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

StepRange parse_step_range(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? std::nullopt : number(text.substr(dash + 1));
  if (!first || !last)
    fail(ExitCode::kUsage, "'run.profile_steps' must be first-last, as in \"10-12\", got \"{}\"", text);
  if (*first < 1) fail(ExitCode::kUsage, "'run.profile_steps' begins at step {}, steps begin at 1", *first);
  if (*last < *first)
    fail(ExitCode::kUsage, "'run.profile_steps' ends at step {}, before it begins at step {}", *last, *first);
  return {*first, *last};
}

}  // namespace ripstop
