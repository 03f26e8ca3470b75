#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Records named ranges of a rank's time between start() and stop(), for a trace. Ranges of the main thread
/// nest on track 0; ranges of any other track do not overlap. Of the ranges that begin then, keeps at most
/// `most_ranges` and counts the rest in dropped(). Only begin() and end() are for all threads.
class RangeRecorder {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr size_t kMostRanges = 500'000;
  struct Range {
    std::string name;
    size_t track = 0;  ///< index in tracks()
    int64_t begin_ns = 0, end_ns = 0;
    int64_t bytes = -1;  ///< bytes that a collective sends; -1: no collective
    bool kept = true;    ///< false: beyond the limit
  };

  explicit RangeRecorder(size_t most_ranges = kMostRanges) : most_(most_ranges) {}
  /// Forgets all earlier ranges.
  void start();
  /// Closes the ranges of open(). Records the ranges of begin() so far, with "(goes on)" in their names.
  void stop();
  bool is_on() const { return is_on_; }

  /// Opens and closes a range of the main thread. Does nothing if the recorder is off.
  void open(std::string_view name, Time at = now());
  void close(Time at = now());
  /// Begins a range beside those of open(), on the first free track of `kind` ("fsdp", "fsdp 2", ...), and
  /// returns the track. If the range begins before start(), its rest is recorded. Thread-safe, like end().
  size_t begin(const std::string& kind, std::string name);
  void end(size_t track, int64_t bytes = -1);

  const std::vector<Range>& ranges() const { return ranges_; }
  std::vector<std::string> tracks() const {
    const std::lock_guard lock(mutex_);
    return tracks_;
  }
  int64_t dropped() const { return dropped_; }

  static Time now() { return std::chrono::steady_clock::now(); }
  static int64_t nanoseconds(Time at) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
  }

 private:
  Range begun(std::string name, size_t track, Time at);
  void keep(Range range, int64_t end_ns);

  size_t most_, begun_ = 0;
  bool is_on_ = false;
  int64_t start_ns_ = 0, dropped_ = 0;
  std::vector<Range> ranges_, open_, beside_;  ///< ended; open on the main thread; open on other tracks
  std::vector<std::string> tracks_{"steps"};
  mutable std::mutex mutex_;
};

/// A range of the main thread that ends with the scope. `recorder` may be null.
class RecordedRange {
 public:
  RecordedRange(RangeRecorder* recorder, std::string_view name)
      : recorder_(recorder != nullptr && recorder->is_on() ? recorder : nullptr) {
    if (recorder_ != nullptr) recorder_->open(name);
  }
  ~RecordedRange() {
    if (recorder_ != nullptr) recorder_->close();
  }
  RecordedRange(const RecordedRange&) = delete;
  RecordedRange& operator=(const RecordedRange&) = delete;

 private:
  RangeRecorder* recorder_;
};

}  // namespace ripstop
