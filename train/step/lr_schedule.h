// The learning rate as a pure function of the step.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>

#include "train/config/run_config.h"

namespace ripstop {

/// The share of optimizer.learning_rate that step `step` of a run of `steps` uses; steps count from 1.
///
/// Warm-up, w = warmup_steps: step s <= w uses s / w, so the first step moves already and step w has the
/// whole rate (torchtitan's rule; Hugging Face's is one step behind and begins with 0). After it the rate
/// falls from 1 at step w + 1 towards minimum_ratio, which the step after the last one would have, so that no
/// step is wasted at 0: with p = (s - 1 - w) / (steps - w), linear is 1 - p and cosine (1 + cos(pi p)) / 2,
/// both scaled to end at minimum_ratio (Hugging Face's rule). Constant stays at 1.
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
