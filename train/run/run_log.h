// RunLog: the output of a run while it goes on: lines for people, and events in metrics.jsonl.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "train/report/live_line.h"
#include "train/run/run_directory.h"

namespace ripstop {

/// Rank 0 tells; on other ranks all functions do nothing.
class RunLog {
 public:
  /// `say` prints a line for people and `live` shows what is going on; both may be null. `directory`, null on
  /// other ranks than 0, opens its metrics before the first event. `step`: the steps done. The references
  /// must outlive this.
  RunLog(std::function<void(const std::string&)> say, LiveLine* live, std::optional<RunDirectory>& directory,
         const int64_t& step)
      : say_(std::move(say)), live_(live), directory_(directory), step_(step) {}

  void say(const std::string& line) const {
    if (say_) say_(line);
  }
  void show(const std::string& text) const {
    if (live_ != nullptr) live_->show(text);
  }
  void end_live_line() const {
    if (live_ != nullptr) live_->clear();
  }
  /// Null on other ranks, and if there is none.
  const LiveLine* live() const { return live_; }
  bool live_is_due() const { return live_ != nullptr && live_->is_due(); }

  /// A line for people and a `warning` event.
  void warn(const std::string& text);
  /// Writes an event. Lines that cannot be written wait in memory, and training goes on. Throws
  /// Error(kStorage) when too many wait.
  void write(const MetricsEvent& event);
  /// Returns when all lines are on the disk, before a checkpoint is saved: a run that resumes there does not
  /// write them again. If they still cannot be written, says so and returns.
  void sync();

 private:
  std::function<void(const std::string&)> say_;
  LiveLine* live_;
  std::optional<RunDirectory>& directory_;
  const int64_t& step_;
};

}  // namespace ripstop
