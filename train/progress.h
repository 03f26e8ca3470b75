// How long work shows itself to people: rates, sizes, time left, the step line.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "train/metrics.h"

namespace ripstop {

/// "42s", "12m30s", "3h12m", "2d04h"; "?" for what is no time.
std::string duration_text(double seconds);

/// "512 B", "61.3 MiB", "64.0 GiB".
std::string bytes_text(int64_t bytes);

/// "1 example", "3 micro-batches": `noun` in the singular.
std::string counted(int64_t number, const std::string& noun);

/// The line of one step for people, without the line end:
/// `step 1200/20000  loss 2.3187  grad_norm 0.41  lr 1.98e-05  118400 tok/s  mfu 41.2%  61.3/64.0 GiB  eta
/// 3h12m`. The utilization is left out where the peak is unknown, the limit where there is none.
std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds);

/// "prepare  12000/204045 documents  5.9%  3200/s  eta 1m00s"; without share and time left where `total` is
/// 0. The rate is that of what was done beyond `already`.
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
