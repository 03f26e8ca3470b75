// Stand-ins of the CUDA run time: streams and events. See CALLS.md for what the real ones do.
#include <map>

#include <fmt/format.h>

#include "tests/emulated_device/cuda_runtime.h"
#include "tests/emulated_device/scheduler.h"

namespace ripstop::emulated {
namespace {

struct EventState {
  int device = 0;
  bool has_time = true;
  PointHandle point;  // the most recent record; null: none yet
};

// Handles are addresses that no program can have, as those of streams.
constexpr uint64_t kFirstEvent = 0xe7e0'0000'0000'0000;

class Events {
 public:
  static Events& instance() {
    static auto& events = *new Events;
    return events;
  }
  cudaEvent_t make(int device, bool has_time) {
    const DeviceLock lock;
    const auto handle = reinterpret_cast<cudaEvent_t>(kFirstEvent + ++made_ * 16);
    events_[handle] = {device, has_time, nullptr};
    return handle;
  }
  /// Null if no such event ever was; refuses one that was destroyed.
  EventState* find(cudaEvent_t event, const char* call) {
    const DeviceLock lock;
    if (const auto found = events_.find(event); found != events_.end()) return &found->second;
    const auto bits = reinterpret_cast<uint64_t>(event);
    if (bits > kFirstEvent && bits <= kFirstEvent + made_ * 16)
      refuse(call, fmt::format("event {} was destroyed", (bits - kFirstEvent) / 16));
    return nullptr;
  }
  void end(cudaEvent_t event) {
    const DeviceLock lock;
    events_.erase(event);
  }

 private:
  std::map<cudaEvent_t, EventState> events_;
  uint64_t made_ = 0;
};

EventState* find_event(cudaEvent_t event, const char* call) {
  return Events::instance().find(event, call);
}
int device_of(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy ? current_device() : scheduler().device_of(stream);
}

}  // namespace
}  // namespace ripstop::emulated

using namespace ripstop::emulated;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return answer(cudaErrorInvalidValue);
  *stream = scheduler().make_stream(current_device(), flags != cudaStreamNonBlocking);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  scheduler().run_a_bit();
  if (stream == nullptr || stream == cudaStreamLegacy || !scheduler().knows(stream, "cudaStreamDestroy"))
    return answer(cudaErrorInvalidResourceHandle);
  scheduler().end_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!scheduler().knows(stream, "cudaStreamSynchronize")) return answer(cudaErrorInvalidResourceHandle);
  scheduler().wait(scheduler().ends_of(stream), "cudaStreamSynchronize");
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  scheduler().wait(scheduler().ends(current_device()), "cudaDeviceSynchronize");
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  scheduler().run_a_bit();
  const EventState* state = find_event(event, "cudaStreamWaitEvent");
  if (state == nullptr || !scheduler().knows(stream, "cudaStreamWaitEvent"))
    return answer(cudaErrorInvalidResourceHandle);
  if (flags != cudaEventWaitDefault) return answer(cudaErrorInvalidValue);
  if (state->point != nullptr)
    scheduler().append(
        stream, "cudaStreamWaitEvent", [] { return true; }, state->point);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
  if (event == nullptr || (flags & ~kKnown) != 0) return answer(cudaErrorInvalidValue);
  *event = Events::instance().make(current_device(), (flags & cudaEventDisableTiming) == 0);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (find_event(event, "cudaEventDestroy") == nullptr) return answer(cudaErrorInvalidResourceHandle);
  Events::instance().end(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  scheduler().run_a_bit();
  EventState* state = find_event(event, "cudaEventRecord");
  if (state == nullptr || !scheduler().knows(stream, "cudaEventRecord") || device_of(stream) != state->device)
    return answer(cudaErrorInvalidResourceHandle);
  state->point = scheduler().append(stream, "cudaEventRecord", [] { return true; });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const EventState* state = find_event(event, "cudaEventSynchronize");
  if (state == nullptr) return answer(cudaErrorInvalidResourceHandle);
  scheduler().wait({state->point}, "cudaEventSynchronize");
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const EventState* state = find_event(event, "cudaEventQuery");
  if (state == nullptr) return answer(cudaErrorInvalidResourceHandle);
  // A slow device at times, but one that gets on.
  if (!scheduler().has_reached(state->point)) scheduler().run_a_bit(/*at_least=*/2);
  return scheduler().has_reached(state->point) ? cudaSuccess : answer(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (milliseconds == nullptr) return answer(cudaErrorInvalidValue);
  const EventState *from = find_event(begin, "cudaEventElapsedTime"),
                   *to = find_event(end, "cudaEventElapsedTime");
  if (from == nullptr || to == nullptr || !from->has_time || !to->has_time || from->point == nullptr ||
      to->point == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (!scheduler().has_reached(from->point) || !scheduler().has_reached(to->point))
    return answer(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(to->point->time - from->point->time).count();
  return cudaSuccess;
}

}  // extern "C"
