#include "train/report/progress.h"

#include <fmt/format.h>

#include "train/report/human_text.h"

namespace ripstop {
namespace {

// A live line is overwritten, so it may change often. A log file keeps every line.
constexpr auto kLiveInterval = std::chrono::milliseconds(200);
constexpr auto kLineInterval = std::chrono::seconds(30);

std::string amount_text(const std::string& unit, int64_t amount) {
  return unit == "byte" ? bytes_text(amount) : counted(amount, unit);
}

std::string rate_text(const std::string& unit, double rate) {
  if (unit == "byte") return bytes_text(static_cast<int64_t>(rate)) + "/s";
  return rate < 10 ? fmt::format("{:.2g}/s", rate) : fmt::format("{:.0f}/s", rate);
}

}  // namespace

std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already) {
  // Without those that were there at the start: they took no time.
  const double rate = seconds > 0 ? static_cast<double>(done - already) / seconds : 0;
  if (total <= 0) return fmt::format("{}  {}  {}", what, amount_text(unit, done), rate_text(unit, rate));
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : -1;
  const std::string begin = unit == "byte" ? bytes_text(done) : std::to_string(done);
  return fmt::format("{}  {}/{}  {:.1f}%  {}  eta {}", what, begin, amount_text(unit, total), 100.0 * share,
                     rate_text(unit, rate), duration_text(left));
}

Progress::Progress(std::FILE* stream, std::string what, std::string unit, int64_t total, int64_t already)
    : line_(stream),
      what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      already_(already),
      begin_(Clock::now()),
      last_shown_(begin_) {}

void Progress::update(int64_t done) {
  const Clock::time_point now = Clock::now();
  if (now - last_shown_ < (line_.is_live() ? Clock::duration(kLiveInterval) : Clock::duration(kLineInterval)))
    return;
  last_shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string text = progress_line(what_, unit_, done, total_, seconds, already_);
  if (line_.is_live())
    line_.show(text);
  else
    line_.print(text);
}

void Progress::finish(int64_t done) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  std::string text = fmt::format("{}  {} in {}", what_, amount_text(unit_, done), duration_text(seconds));
  // A rate over a time that shows as 0s is that of a clock, not of the work.
  if (seconds >= 0.5 && done > already_)
    text += "  " + rate_text(unit_, static_cast<double>(done - already_) / seconds);
  line_.clear();
  line_.print(text);
}

}  // namespace ripstop
