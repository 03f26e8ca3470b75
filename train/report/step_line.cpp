#include "train/report/step_line.h"

#include <fmt/format.h>

#include <cmath>

#include "train/report/human_text.h"

namespace ripstop {
namespace {

// "61.3/64.0 GiB"; "2.6 MiB/64.0 GiB" if the units differ.
std::string memory_text(int64_t peak, std::optional<int64_t> limit) {
  const std::string used = bytes_text(peak);
  if (!limit) return used;
  const std::string all = bytes_text(*limit);
  const size_t unit = used.find(' ');
  return (all.substr(all.find(' ')) == used.substr(unit) ? used.substr(0, unit) : used) + "/" + all;
}

}  // namespace

std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds) {
  // Two digits after the point would show 0.00 for a small norm.
  const double norm = without_nan_sign(step.grad_norm);
  const bool small = norm != 0 && std::abs(norm) < 0.1;
  std::string line = fmt::format("step {}/{}  loss {:.4f}  grad_norm {}  lr {:.2e}  {:.0f} tok/s", step.step,
                                 steps, without_nan_sign(step.loss),
                                 small ? fmt::format("{:.2g}", norm) : fmt::format("{:.2f}", norm),
                                 step.learning_rate, step.tokens_per_second);
  if (step.model_flops_utilization)
    line += fmt::format("  mfu {:.1f}%", 100.0 * *step.model_flops_utilization);
  return line + fmt::format("  {}  eta {}", memory_text(step.peak_memory_bytes, memory_limit_bytes),
                            duration_text(eta_seconds));
}

std::string live_step_line(const StepMetrics& step, int64_t steps, double eta_seconds) {
  return fmt::format("step {}/{}  loss {:.4f}  {:.0f} tok/s  eta {}", step.step, steps,
                     without_nan_sign(step.loss), step.tokens_per_second, duration_text(eta_seconds));
}

}  // namespace ripstop
