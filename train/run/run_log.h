#pragma once
#include <functional>
#include <optional>
#include <string>

#include "train/report/live_line.h"
#include "train/run/run_directory.h"

namespace ripstop {

/// The output of a run: lines for people, and events in metrics.jsonl. Does nothing on ranks other than 0.
class RunLog {
 public:
  /// `say` prints a line for people, `live` shows the work under way; both may be null. `directory`, set on
  /// rank 0 only, must have opened its metrics before the first event. `step`: the number of steps done,
  /// updated by the caller. All arguments must outlive this object.
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
  bool live_is_due() const { return live_ != nullptr && live_->is_due(); }

  /// Writes a line for people and a `warning` event.
  void warn(const std::string& text);
  /// Writes an event. A line that the disk refuses waits in memory. Throws Error(kStorage) if too many lines
  /// wait, and like tell().
  void write(const MetricsEvent& event);
  /// Tells people about lines that wait in memory because they cannot be written, and about a replaced log.
  /// Throws Error(kStorage) if another process owns the run. write() calls it; call it also in a long step.
  void tell();
  /// Syncs all lines to the disk. Call it before a save, because a run that resumes from the checkpoint does
  /// not write the lines of earlier steps again. Warns of lines that cannot be written; throws other errors.
  void sync();

 private:
  std::function<void(const std::string&)> say_;
  LiveLine* live_;
  std::optional<RunDirectory>& directory_;
  const int64_t& step_;
  bool lines_wait_ = false;  ///< people were told that lines wait
};

}  // namespace ripstop
