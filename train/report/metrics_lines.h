// Events of metrics.jsonl to lines of JSON, and back.
#pragma once
#include <cstdint>
#include <string>

#include "train/report/metrics.h"

namespace ripstop {

/// The event as one line with its line end. `time` is the current time if the event has none. Defined for
/// each event of metrics.h.
template <class Event>
std::string line_of(const Event& event);

/// Adds the event of `line` (without line end) to `log`. Throws Error(kStorage) if the line is no event.
void add_line(const std::string& line, MetricsLog& log);

/// The event's step; 0 if it has none. Throws Error(kStorage) if the line is no event.
int64_t step_of_line(const std::string& line);

}  // namespace ripstop
