#include "train/report/step_line.h"

#include <fmt/format.h>

#include <cmath>

#include "train/report/human_text.h"

namespace ripstop {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

}  // namespace

std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds) {
  // Two digits after the point would show 0.00 for a small norm, and 0.0 GiB for a small model.
  const bool small = step.grad_norm != 0 && std::abs(step.grad_norm) < 0.1;
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  grad_norm {}  lr {:.2e}  {:.0f} tok/s", step.step, steps, step.loss,
      small ? fmt::format("{:.2g}", step.grad_norm) : fmt::format("{:.2f}", step.grad_norm),
      step.learning_rate, step.tokens_per_second);
  // No peak is known for some GPUs, and then there is no utilization.
  if (step.model_flops_utilization)
    line += fmt::format("  mfu {:.1f}%", 100.0 * *step.model_flops_utilization);
  const double peak = static_cast<double>(step.peak_memory_bytes) / kGiB;
  line += fmt::format("  {:.{}f}", peak, peak < 0.1 ? 3 : 1);
  if (memory_limit_bytes) line += fmt::format("/{:.1f}", static_cast<double>(*memory_limit_bytes) / kGiB);
  return line + fmt::format(" GiB  eta {}", duration_text(eta_seconds));
}

}  // namespace ripstop
