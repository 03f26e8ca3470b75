#include "train/report/step_line.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "train/report/human_text.h"
#include "train/report/screen_text.h"

namespace ripstop {
namespace {

// "61.3/64.0 GiB"; "2.6 MiB/64.0 GiB" if the two differ by their unit.
std::string memory_text(int64_t peak, std::optional<int64_t> limit) {
  const std::string used = bytes_text(peak);
  if (!limit) return used;
  const std::string all = bytes_text(*limit);
  const size_t unit = used.find(' ');
  return (all.substr(all.find(' ')) == used.substr(unit) ? used.substr(0, unit) : used) + "/" + all;
}

}  // namespace

std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds, int64_t width) {
  // Two digits after the point would show 0.00 for a small norm.
  const double norm = without_nan_sign(step.grad_norm);
  const bool small = norm != 0 && std::abs(norm) < 0.1;
  enum Part { kStep, kLoss, kNorm, kRate, kSpeed, kUtilization, kMemory, kEta, kParts };
  std::array<std::string, kParts> parts;
  parts[kStep] = fmt::format("step {}/{}", step.step, steps);
  parts[kLoss] = fmt::format("loss {:.4f}", without_nan_sign(step.loss));
  parts[kNorm] =
      fmt::format("grad_norm {}", small ? fmt::format("{:.2g}", norm) : fmt::format("{:.2f}", norm));
  parts[kRate] = fmt::format("lr {:.2e}", step.learning_rate);
  parts[kSpeed] = fmt::format("{:.0f} tok/s", step.tokens_per_second);
  // No peak is known for some GPUs, and then there is no utilization.
  if (step.model_flops_utilization)
    parts[kUtilization] = fmt::format("mfu {:.1f}%", 100.0 * *step.model_flops_utilization);
  parts[kMemory] = memory_text(step.peak_memory_bytes, memory_limit_bytes);
  parts[kEta] = "eta " + duration_text(eta_seconds);
  const auto joined = [&] {
    std::string line;
    for (const std::string& part : parts)
      if (!part.empty()) line += (line.empty() ? "" : "  ") + part;
    return line;
  };
  std::string line = joined();
  for (const Part least : {kMemory, kUtilization, kRate, kNorm}) {
    if (width <= 0 || screen_columns(line) <= width) break;
    parts[least].clear();
    line = joined();
  }
  return line;
}

std::string live_step_line(const StepMetrics& step, int64_t steps, double eta_seconds) {
  return fmt::format("step {}/{}  loss {:.4f}  {:.0f} tok/s  eta {}", step.step, steps,
                     without_nan_sign(step.loss), step.tokens_per_second, duration_text(eta_seconds));
}

}  // namespace ripstop
