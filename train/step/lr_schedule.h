#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>

#include "train/config/run_config.h"

namespace ripstop {

/// The factor on optimizer.learning_rate in step `step` (from 1) of a run of `steps` steps.
///
/// Warm-up, with w = warmup_steps: a step s <= w uses s / w, so the first step moves the weights and step w
/// has the full rate. This is torchtitan's rule; Hugging Face's rule lags by one step and begins with 0.
///
/// After warm-up the factor falls from 1 at step w + 1 to minimum_ratio at step steps + 1, so no step has
/// rate 0. With p = (s - 1 - w) / (steps - w), linear is 1 - p and cosine is (1 + cos(pi p)) / 2, both scaled
/// to end at minimum_ratio (Hugging Face's rule). Constant stays at 1.
inline double learning_rate_factor(const ScheduleSection& schedule, int64_t step, int64_t steps) {
  const int64_t warmup = schedule.warmup_steps;
  if (step <= warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  if (schedule.kind == ScheduleKind::kConstant) return 1.0;
  if (step > steps) return schedule.minimum_ratio;
  const double progress = static_cast<double>(step - 1 - warmup) / static_cast<double>(steps - warmup);
  const double fall = schedule.kind == ScheduleKind::kLinear
                          ? 1.0 - progress
                          : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return schedule.minimum_ratio + (1.0 - schedule.minimum_ratio) * fall;
}

}  // namespace ripstop
