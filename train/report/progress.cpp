#include "train/report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "train/report/human_text.h"

namespace ripstop {
namespace {

// A terminal line is overwritten, so it may change often. A log file keeps every line.
constexpr auto kLiveInterval = std::chrono::milliseconds(200);
constexpr auto kLineInterval = std::chrono::seconds(30);

// Whether a line can be overwritten. Under mpirun every stream looks like a terminal, so slurm/launch.sh sets
// TERM=dumb if its own output is none.
bool is_terminal(FILE* stream) {
  const char* kind = std::getenv("TERM");
  return isatty(fileno(stream)) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

}  // namespace

std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already) {
  // Without those that were there at the start: they took no time.
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
  // Spaces cover what is left of a longer live line.
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
