#include "train/report/live_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "train/report/human_text.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

// A live line is overwritten, so it may change often. A log file keeps every line.
constexpr auto kLiveInterval = std::chrono::milliseconds(200);
constexpr auto kLineInterval = std::chrono::seconds(30);
// Lines that wait for a reader, or for room on a disk, take at most this much memory.
constexpr size_t kMostWaitingBytes = size_t{1} << 20;
// Moves to the first column and clears the line.
constexpr const char* kClear = "\r\x1b[K";

std::string amount_text(const std::string& unit, int64_t amount) {
  return unit == "byte" ? bytes_text(amount) : counted(amount, unit);
}

std::string rate_text(const std::string& unit, double rate) {
  if (unit == "byte") return bytes_text(static_cast<int64_t>(rate)) + "/s";
  return rate < 10 ? fmt::format("{:.2g}/s", rate) : fmt::format("{:.0f}/s", rate);
}

}  // namespace

LiveLine::LiveLine(std::FILE* stream) : stream_(stream), terminal_(terminal_of(stream)) {}

LiveLine::~LiveLine() {
  clear();
  if (!waiting_.empty()) print_text(stream_, waiting_);
}

bool LiveLine::is_due() const {
  return is_live() && (shown_.empty() || Clock::now() - last_shown_ >= kLiveInterval);
}

void LiveLine::show(const std::string& text) {
  if (!is_live() || !waiting_.empty()) return;
  // Cuts the line, because a line of the full width would move the cursor to the next line.
  shown_ = cut_to_width(text, std::max<int64_t>(terminal_.width - 1, 0));
  last_shown_ = Clock::now();
  write(kClear + shown_);
}

void LiveLine::clear() {
  if (shown_.empty()) return;
  shown_.clear();
  write(kClear);
}

void LiveLine::print(const std::string& line) {
  write((shown_.empty() ? "" : kClear) + (terminal_.is_terminal ? visible_text(line) : line) + "\n" + shown_);
}

void LiveLine::write(const std::string& text) {
  if (waiting_.size() + text.size() <= kMostWaitingBytes) waiting_ += text;
  std::fflush(stream_);
  waiting_.erase(0, write_patiently(fileno(stream_), waiting_, /*seconds=*/0));
  if (errno != 0 && errno != EAGAIN && errno != ENOSPC && errno != EDQUOT) waiting_.clear();
}

std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already) {
  const double rate = seconds > 0 ? static_cast<double>(done - already) / seconds : 0;
  if (total <= 0) return fmt::format("{}  {}  {}", what, amount_text(unit, done), rate_text(unit, rate));
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : -1;
  const std::string begin = unit == "byte" ? bytes_text(done) : std::to_string(done);
  return fmt::format("{}  {}/{}  {:.1f}%  {}  eta {}", what, begin, amount_text(unit, total), 100.0 * share,
                     rate_text(unit, rate), duration_text(left));
}

void Progress::update(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                      int64_t already) {
  const Clock::time_point now = Clock::now();
  if (what != what_) {
    finish();
    what_ = what;
    unit_ = unit;
    already_ = already;
    begin_ = last_shown_ = now;
  }
  done_ = done;
  if (now - last_shown_ < (line_.is_live() ? Clock::duration(kLiveInterval) : Clock::duration(kLineInterval)))
    return;
  last_shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string text = progress_line(what, unit, done, total, seconds, already_);
  if (line_.is_live())
    line_.show(text);
  else
    line_.print(text);
}

void Progress::finish() {
  line_.clear();
  if (what_.empty()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  std::string text = fmt::format("{}  {} in {}", what_, amount_text(unit_, done_), duration_text(seconds));
  // If the time shows as 0s, it is too short for a rate.
  if (seconds >= 0.5 && done_ > already_)
    text += "  " + rate_text(unit_, static_cast<double>(done_ - already_) / seconds);
  line_.print(text);
  what_.clear();
}

}  // namespace ripstop
