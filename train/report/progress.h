// A progress bar for long work: rate, share done, time left.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "train/report/live_line.h"

namespace ripstop {

///   prepare  12000/204045 documents  5.9%  3200/s  eta 1m00s
/// `unit` is in the singular; "byte" shows sizes. Without share and time left if `total` is 0. The rate is
/// that of what was done beyond `already`.
std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already = 0);

/// Shows the progress of long work: a live line at a terminal, otherwise a line every 30 s. Not thread-safe.
class Progress {
 public:
  /// `stream` must outlive this. `total` is 0 if the amount is not known. `already` was done by an earlier
  /// start: it counts as done, but not for the rate.
  Progress(std::FILE* stream, std::string what, std::string unit, int64_t total, int64_t already = 0);

  /// Tells how much is done now. Cheap enough to call often.
  void update(int64_t done);

  /// Prints a line that stays, above the live line.
  void print(const std::string& line) { line_.print(line); }

  /// Removes the live line until the next update, as another stream may have the same terminal.
  void clear() { line_.clear(); }

  /// Prints the last line, with the rate over all the time if anything was done and the time is not 0s, and
  /// ends a live line.
  void finish(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  LiveLine line_;
  std::string what_;
  std::string unit_;
  int64_t total_, already_;
  Clock::time_point begin_;
  Clock::time_point last_shown_;
};

}  // namespace ripstop
