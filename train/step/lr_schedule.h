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
/// Then the factor falls from 1 at step b + 1 to minimum_ratio at step steps + 1, so no step has rate 0. With
/// wsd (warm-up, stable, decay) b = steps - decay_steps(steps), and steps w + 1 to b have 1; else b = w. With
/// p = (s - 1 - b) / (steps - b), linear is 1 - p, 1-sqrt is 1 - sqrt(p), and cosine is (1 + cos(pi p)) / 2,
/// all scaled to end at minimum_ratio (Hugging Face's rule). Constant stays at 1.
inline double learning_rate_factor(const ScheduleSection& schedule, int64_t step, int64_t steps) {
  const int64_t warmup = schedule.warmup_steps;
  if (step <= warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  if (schedule.kind == ScheduleKind::kConstant) return 1.0;
  if (step > steps) return schedule.minimum_ratio;
  const bool is_wsd = schedule.kind == ScheduleKind::kWsd;
  const int64_t begin = is_wsd ? steps - schedule.decay_steps(steps) : warmup;
  if (step <= begin) return 1.0;
  const double progress = static_cast<double>(step - 1 - begin) / static_cast<double>(steps - begin);
  ScheduleDecay decay = schedule.decay;
  if (!is_wsd)
    decay = schedule.kind == ScheduleKind::kLinear ? ScheduleDecay::kLinear : ScheduleDecay::kCosine;
  const double fall = decay == ScheduleDecay::kLinear ? 1.0 - progress
                      : decay == ScheduleDecay::kOneMinusSqrt
                          ? 1.0 - std::sqrt(progress)
                          : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return schedule.minimum_ratio + (1.0 - schedule.minimum_ratio) * fall;
}

}  // namespace ripstop
