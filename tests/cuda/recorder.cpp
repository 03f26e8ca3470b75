#include "tests/cuda/recorder.h"

#include <fmt/format.h>

#include <algorithm>

namespace ripstop::recording {
namespace {

constexpr int kQueriesUntilReached = 100;

size_t at(int index) {
  return static_cast<size_t>(index);
}

}  // namespace

Recorder& Recorder::instance() {
  static Recorder recorder;
  return recorder;
}

void Recorder::clear() {
  host_waits_for_all();
  accesses_.clear();
  log_.clear();
  races_.clear();
}

int Recorder::make_stream() {
  now_.emplace_back(now_.size() + 1, 0);
  return static_cast<int>(now_.size()) - 1;
}

int Recorder::make_event() {
  events_.emplace_back();
  queries_.push_back(0);
  return static_cast<int>(events_.size()) - 1;
}

void Recorder::join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (size_t s = 0; s < other.size(); ++s) clock[s] = std::max(clock[s], other[s]);
}

void Recorder::record(int event, int stream) {
  Clock clock = now_[at(stream)];
  join(clock, now_[0]);
  events_[at(event)] = clock;
  queries_[at(event)] = 0;
}

void Recorder::make_wait(int event, int stream) {
  const bool compute = stream == compute_stream;
  if (drop == (compute ? Drop::kOfCompute : Drop::kOfCommunication)) return;
  join(now_[at(stream)], events_[at(event)]);
}

void Recorder::host_waits_for_event(int event) {
  join(now_[0], events_[at(event)]);
}

void Recorder::host_waits_for_stream(int stream) {
  join(now_[0], now_[at(stream)]);
}

void Recorder::host_waits_for_all() {
  for (const Clock& clock : std::vector<Clock>(now_)) join(now_[0], clock);
}

bool Recorder::query(int event) {
  if (++queries_[at(event)] < kQueriesUntilReached) return false;
  host_waits_for_event(event);
  return true;
}

void Recorder::operation(const std::string& name, int stream, std::vector<Span> reads,
                         std::vector<Span> writes, const void* comm) {
  Clock& now = now_[at(stream)];
  join(now, now_[0]);
  if (now.size() <= at(stream)) now.resize(at(stream) + 1, 0);
  ++now[at(stream)];
  log_.push_back({name, stream, now, std::move(reads), std::move(writes), comm, group});
  const RecordedOperation operation = log_.back();
  for (const Span& span : operation.reads) access(operation, span, false);
  for (const Span& span : operation.writes) access(operation, span, true);
}

void Recorder::access(const RecordedOperation& operation, const Span& span, bool writes) {
  if (span.bytes == 0) return;
  const auto before = [&](const Access& other) {
    return at(other.stream) < operation.clock.size() && other.time <= operation.clock[at(other.stream)];
  };
  for (const Access& other : accesses_)
    if ((writes || other.writes) && other.span.overlaps(span) && !before(other))
      races_.push_back(fmt::format("{} on stream {} {} what {} on stream {} {}", operation.name,
                                   operation.stream, writes ? "writes" : "reads", other.name, other.stream,
                                   other.writes ? "writes" : "reads"));
  // Forget earlier accesses that this one covers and is ordered after: whoever waits for this one waits for
  // them.
  std::erase_if(accesses_, [&](const Access& other) {
    return span.covers(other.span) && before(other) &&
           (writes || (!other.writes && other.stream == operation.stream));
  });
  accesses_.push_back(
      {span, writes, operation.stream, operation.clock[at(operation.stream)], operation.name});
}

void Recorder::forget(const Span& memory) {
  host_waits_for_all();  // as cudaFree does
  std::erase_if(accesses_, [&](const Access& access) { return memory.covers(access.span); });
}

}  // namespace ripstop::recording
