#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "train/report/metrics.h"

namespace ripstop {

/// A step for people, without the line end:
///   step 20/500  loss 2.3187  grad_norm 0.41  lr 1.98e-05  118400 tok/s  mfu 41.2%  61.3/64.0 GiB  eta 3h12m
/// mfu is left out if it is not known, and the memory limit if there is none.
std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds);

/// The live line: step 123/500  loss 2.3187  118400 tok/s  eta 3h12m
std::string live_step_line(const StepMetrics& step, int64_t steps, double eta_seconds);

}  // namespace ripstop
