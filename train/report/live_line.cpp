#include "train/report/live_line.h"

#include <algorithm>
#include <string_view>

#include "train/report/screen_text.h"

namespace ripstop {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
// Back to the first column, and clear what is to the right.
constexpr const char* kClear = "\r\x1b[K";
constexpr int64_t kIndent = 2;

}  // namespace

LiveLine::LiveLine(std::FILE* stream) : stream_(stream), terminal_(terminal_of(stream)) {}

LiveLine::~LiveLine() {
  clear();
}

bool LiveLine::is_due() const {
  return is_live() && (shown_.empty() || Clock::now() - last_shown_ >= kInterval);
}

void LiveLine::show(const std::string& text) {
  if (!is_live()) return;
  // A line of the full width would leave the cursor on the next one.
  shown_ = cut_to_width(text, width() > 1 ? width() - 1 : 0);
  last_shown_ = Clock::now();
  write(kClear + shown_);
}

void LiveLine::clear() {
  if (shown_.empty()) return;
  shown_.clear();
  write(kClear);
}

void LiveLine::print(const std::string& line) {
  if (!terminal_.is_terminal) return write(line + "\n");
  std::string text = shown_.empty() ? "" : kClear;
  // A table keeps its own line ends and indents.
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find('\n', begin), line.size());
    text += wrap_to_width(std::string_view(line).substr(begin, end - begin), width(), kIndent) + "\n";
    begin = end + 1;
  }
  write(text + shown_);
}

void LiveLine::write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream_);
  // A log file is no terminal: without this, lines would appear minutes late.
  std::fflush(stream_);
}

}  // namespace ripstop
