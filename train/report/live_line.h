// LiveLine: the last line of a terminal, which is rewritten in place, and the lines above it, which stay.
// Progress shows long work there: rate, share done, time left.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "train/report/terminal.h"

namespace ripstop {

/// The lines of one stream. In a log or a file there is no live line, and every line is kept as it is. A
/// failed write is no error here, as a run outlives its terminal; main() looks at the stream before the
/// program ends. Not thread-safe. At a terminal one object at a time may have a live line, or they overwrite
/// each other.
class LiveLine {
 public:
  /// `stream` must outlive this.
  explicit LiveLine(std::FILE* stream);
  /// Clears the live line.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  /// Whether the stream can show a live line.
  bool is_live() const { return terminal_.rewrites; }
  /// Whether the live line is old enough to be rewritten. Callers that show often ask this first.
  bool is_due() const;

  /// Shows `text` as the live line, cut to the width. Does nothing if the stream has none.
  void show(const std::string& text);
  /// Removes the live line.
  void clear();
  /// Prints a line that stays, above the live line.
  void print(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::string& text);

  std::FILE* stream_;
  Terminal terminal_;
  std::string shown_;  ///< the live line; empty: none
  Clock::time_point last_shown_;
};

///   prepare  12000/204045 documents  5.9%  3200/s  eta 1m00s
/// `unit` is in the singular; "byte" shows sizes. Without share and time left if `total` is 0. The rate
/// counts what was done beyond `already`.
std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already = 0);

/// Shows the progress of long work, one part after another: a live line at a terminal, otherwise a line every
/// 30 s. Not thread-safe.
class Progress {
 public:
  /// `stream` must outlive this.
  explicit Progress(std::FILE* stream) : line_(stream) {}

  /// Tells how much of the part `what` is done now; `total` is 0 if the amount is not known. The first call
  /// of a part finishes the part before and starts the clock. `already` was done by an earlier start: it
  /// counts as done, but not for the rate. Cheap enough to call often.
  void update(const std::string& what, const std::string& unit, int64_t done, int64_t total,
              int64_t already = 0);

  /// Removes the live line until the next update, as another stream may have the same terminal.
  void clear() { line_.clear(); }

  /// Ends the live line and prints the last line of the part that is under way, if there is one: with the
  /// rate over all the time if anything was done and the time is not 0s.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  LiveLine line_;
  std::string what_;  ///< empty: no part is under way
  std::string unit_;
  int64_t done_ = 0, already_ = 0;
  Clock::time_point begin_, last_shown_;
};

}  // namespace ripstop
