#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace ripstop {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr auto kLiveInterval = std::chrono::milliseconds(200);
constexpr auto kLineInterval = std::chrono::seconds(30);

/// Whether a line can be written over. Under mpirun every stream looks like a terminal; slurm/launch.sh,
/// which knows better, then calls it dumb.
bool is_terminal(FILE* stream) {
  const char* kind = std::getenv("TERM");
  return isatty(fileno(stream)) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "?";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string counted(int64_t number, const std::string& noun) {
  if (number == 1) return "1 " + noun;
  const bool hisses = noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with("s");
  return fmt::format("{} {}{}", number, noun, hisses ? "es" : "s");
}

std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds) {
  const bool small = step.grad_norm != 0 && std::abs(step.grad_norm) < 0.1;
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  grad_norm {}  lr {:.2e}  {:.0f} tok/s", step.step, steps, step.loss,
      small ? fmt::format("{:.2g}", step.grad_norm) : fmt::format("{:.2f}", step.grad_norm),
      step.learning_rate, step.tokens_per_second);
  if (step.model_flops_utilization)
    line += fmt::format("  mfu {:.1f}%", 100.0 * *step.model_flops_utilization);
  const double peak = static_cast<double>(step.peak_memory_bytes) / kGiB;
  line += fmt::format("  {:.{}f}", peak, peak < 0.1 ? 3 : 1);
  if (memory_limit_bytes) line += fmt::format("/{:.1f}", static_cast<double>(*memory_limit_bytes) / kGiB);
  return line + fmt::format(" GiB  eta {}", duration_text(eta_seconds));
}

std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already) {
  const double rate = seconds > 0 ? static_cast<double>(done - already) / seconds : 0;
  const std::string rate_text = rate < 10 ? fmt::format("{:.2g}/s", rate) : fmt::format("{:.0f}/s", rate);
  if (total <= 0) return fmt::format("{}  {} {}  {}", what, done, unit, rate_text);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : -1;
  return fmt::format("{}  {}/{} {}  {:.1f}%  {}  eta {}", what, done, total, unit, 100.0 * share, rate_text,
                     duration_text(left));
}

Progress::Progress(std::FILE* stream, std::string what, std::string unit, int64_t total, int64_t already)
    : stream_(stream),
      what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      already_(already),
      live_(is_terminal(stream)),
      begin_(Clock::now()),
      last_shown_(begin_) {}

void Progress::update(int64_t done) {
  const Clock::time_point now = Clock::now();
  if (now - last_shown_ >= (live_ ? Clock::duration(kLiveInterval) : Clock::duration(kLineInterval)))
    show(done, now);
}

void Progress::finish(int64_t done) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  std::string line = fmt::format("{}  {} {} in {}", what_, done, unit_, duration_text(seconds));
  if (seconds > 0 && done > already_)
    line += fmt::format("  {:.0f}/s", static_cast<double>(done - already_) / seconds);
  const size_t width = line.size();
  if (live_) line = "\r" + line + std::string(shown_width_ > width ? shown_width_ - width : 0, ' ');
  fmt::print(stream_, "{}\n", line);
  std::fflush(stream_);
}

void Progress::show(int64_t done, Clock::time_point now) {
  last_shown_ = now;
  const std::string line = progress_line(what_, unit_, done, total_,
                                         std::chrono::duration<double>(now - begin_).count(), already_);
  if (live_) {
    fmt::print(stream_, "\r{:<{}}", line, shown_width_);
    shown_width_ = std::max(shown_width_, line.size());
  } else {
    fmt::print(stream_, "{}\n", line);
  }
  std::fflush(stream_);
}

}  // namespace ripstop
