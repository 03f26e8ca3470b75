#include "model/device/range_recorder.h"

#include <algorithm>
#include <utility>

#include "model/core/error.h"

namespace ripstop {

void RangeRecorder::start() {
  const std::lock_guard lock(mutex_);
  ranges_.clear();
  begun_ = 0;
  dropped_ = 0;
  start_ns_ = nanoseconds(now());
  is_on_ = true;
}

void RangeRecorder::stop() {
  while (!open_.empty()) close();
  const std::lock_guard lock(mutex_);
  for (Range range : beside_) {
    range.name += " (goes on)";
    keep(std::move(range), nanoseconds(now()));
  }
  is_on_ = false;
}

// A range counts against the limit when it begins, so that outer ranges are kept before inner ones.
RangeRecorder::Range RangeRecorder::begun(std::string name, size_t track, Time at) {
  const bool kept = !is_on_ || begun_++ < most_;
  if (!kept) ++dropped_;
  return {.name = std::move(name), .track = track, .begin_ns = nanoseconds(at), .kept = kept};
}

void RangeRecorder::keep(Range range, int64_t end_ns) {
  if (!is_on_ || !range.kept) return;
  range.begin_ns = std::max(range.begin_ns, start_ns_);
  range.end_ns = end_ns;
  ranges_.push_back(std::move(range));
}

void RangeRecorder::open(std::string_view name, Time at) {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  open_.push_back(begun(std::string(name), 0, at));
}

void RangeRecorder::close(Time at) {
  if (open_.empty()) return;
  const std::lock_guard lock(mutex_);
  keep(std::move(open_.back()), nanoseconds(at));
  open_.pop_back();
}

size_t RangeRecorder::begin(const std::string& kind, std::string name) {
  const std::lock_guard lock(mutex_);
  for (int64_t lane = 1;; ++lane) {
    const std::string of_lane = lane == 1 ? kind : fmt::format("{} {}", kind, lane);
    const auto track = static_cast<size_t>(std::ranges::find(tracks_, of_lane) - tracks_.begin());
    if (track == tracks_.size()) tracks_.push_back(of_lane);
    if (std::ranges::find(beside_, track, &Range::track) != beside_.end()) continue;
    beside_.push_back(begun(std::move(name), track, now()));
    return track;
  }
}

void RangeRecorder::end(size_t track, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto ended = std::ranges::find(beside_, track, &Range::track);
  RIPSTOP_CHECK(ended != beside_.end(), "nothing is under way on track {}", track);
  ended->bytes = bytes;
  keep(std::move(*ended), nanoseconds(now()));
  beside_.erase(ended);
}

}  // namespace ripstop
