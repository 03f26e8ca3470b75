// A progress bar for long work: rate, share done, time left.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ripstop {

///   prepare  12000/204045 documents  5.9%  3200/s  eta 1m00s
/// Without share and time left if `total` is 0. The rate is that of what was done beyond `already`.
std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already = 0);

/// Shows how far long work is: one live line on a terminal, otherwise a line every 30 s. Not thread-safe.
class Progress {
 public:
  /// `stream` must outlive this; `total` 0 where the amount is not known beforehand. `already` was done
  /// before: it counts as done, but not into the rate.
  Progress(std::FILE* stream, std::string what, std::string unit, int64_t total, int64_t already = 0);

  /// So much is done now; cheap enough to call often.
  void update(int64_t done);

  /// The last line, with the whole rate where anything was done. A live line is ended.
  void finish(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  void show(int64_t done, Clock::time_point now);

  std::FILE* stream_;
  std::string what_;
  std::string unit_;
  int64_t total_, already_;
  bool live_;
  size_t shown_width_ = 0;
  Clock::time_point begin_;
  Clock::time_point last_shown_;
};

}  // namespace ripstop
