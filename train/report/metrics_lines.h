// Events as lines of JSON, and back.
#pragma once
#include <cstdint>
#include <string>

#include "train/report/metrics.h"

namespace ripstop {

/// The event as one line with its line end; `time` is now where the event has none. For each event of
/// metrics.h.
template <class Event>
std::string line_of(const Event& event);

/// Adds the event of `line` (without line end) to `log`. Throws Error(kStorage) for what is no event.
void add_line(const std::string& line, MetricsLog& log);

/// The event's step, 0 where it has none. Throws Error(kStorage) for what is no event.
int64_t step_of_line(const std::string& line);

}  // namespace ripstop
