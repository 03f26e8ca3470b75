#include "train/plan/run_speed.h"

#include <algorithm>
#include <vector>

namespace ripstop {
namespace {

// Enough that a few steps beside a save or a validation do not move the median.
constexpr size_t kLastSteps = 21;
constexpr double kStatedUtilization = 0.4;

FlopsPerToken flops_of(const ResolvedRun& run) {
  return run.flops_per_token();
}

// Whether the speed of that start is the speed of `run`.
bool is_alike(const StartEvent& start, const ResolvedRun& run, const RunTarget& target) {
  // Only CPUs are measured for their peak.
  const bool on_cpu = start.peak_flops_source.rfind("measured", 0) == 0;
  return start.mesh == run.mesh && start.recompute == to_string(run.step.sharding.recompute) &&
         start.parameters == parameter_count(run.model) && start.flops_per_token == flops_of(run).causal &&
         on_cpu == (target.device == DeviceKind::kCpu);
}

}  // namespace

std::optional<double> median_speed_of_last_start(const MetricsLog& log) {
  if (log.starts.empty()) return std::nullopt;
  std::vector<double> speeds;
  for (size_t i = log.steps.size() - std::min(log.steps.size(), kLastSteps); i < log.steps.size(); ++i)
    // Steps before the last start may come from other machines.
    if (log.steps[i].time >= log.starts.back().time) speeds.push_back(log.steps[i].tokens_per_second);
  if (speeds.empty()) return std::nullopt;
  const auto middle = speeds.begin() + static_cast<ptrdiff_t>(speeds.size() / 2);
  std::nth_element(speeds.begin(), middle, speeds.end());
  return *middle > 0 ? std::optional(*middle) : std::nullopt;
}

std::optional<RunSpeed> measured_speed(const std::filesystem::path& metrics, const ResolvedRun& run,
                                       const RunTarget& target) {
  MetricsLog log;
  try {
    log = read_metrics(metrics);
  } catch (const Error&) {  // no file, or no log: then nothing is known
    return std::nullopt;
  }
  if (log.starts.empty() || !is_alike(log.starts.back(), run, target)) return std::nullopt;
  const std::optional<double> speed = median_speed_of_last_start(log);
  if (!speed) return std::nullopt;
  return RunSpeed{.tokens_per_second = *speed,
                  .tokens_seen = log.steps.back().tokens_seen,
                  .utilization = {},
                  .source = "measured by the run's last steps"};
}

RunSpeed speed_at_peak(const ResolvedRun& run, double peak_flops, const std::string& source) {
  // Idle sequences and what backward computes again take their time, but are no tokens.
  const double useful = kStatedUtilization * (1 - run.idle_share) / (1 + run.recomputed_share());
  return {.tokens_per_second = useful * peak_flops / flops_of(run).causal,
          .tokens_seen = 0,
          .utilization = kStatedUtilization,
          .source = source};
}

}  // namespace ripstop
