// Events of metrics.jsonl to lines of JSON, and back.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "train/report/metrics.h"

namespace ripstop {

/// The event as one line with its line end. `time` is the current time if the event has none. Defined for
/// each event of metrics.h.
template <class Event>
std::string line_of(const Event& event);

/// What all events have.
struct EventHead {
  std::string event;  ///< "step"; may be one that this version does not know
  int64_t step = 0;
};

/// Adds the event of `line` (without line end) to `log`. Throws Error(kStorage) with the reason, and adds
/// nothing, if the line is no event: no JSON object with `event` and `step`, or a field has a wrong type.
EventHead add_line(std::string_view line, MetricsLog& log);

}  // namespace ripstop
