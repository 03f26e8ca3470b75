// The device table of NVIDIA GPUs. Allocation, and copies from or to host memory, may block the caller.
#include "model/device/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

// Whether the error counts as a fault of ripstop, not of the machine.
bool is_bug(cudaError_t error) {
  constexpr std::array kBugs = {cudaErrorInvalidValue,
                                cudaErrorInvalidConfiguration,
                                cudaErrorInvalidDevicePointer,
                                cudaErrorInvalidMemcpyDirection,
                                cudaErrorInvalidResourceHandle,
                                cudaErrorIllegalAddress,
                                cudaErrorMisalignedAddress,
                                cudaErrorInvalidAddressSpace,
                                cudaErrorInvalidPc,
                                cudaErrorIllegalInstruction,
                                cudaErrorAssert,
                                cudaErrorLaunchFailure,
                                cudaErrorLaunchOutOfResources};
  return std::ranges::find(kBugs, error) != kBugs.end();
}

void select(const Device& device) {
  check_cuda(cudaSetDevice(device.index), "cudaSetDevice");
}

void* allocate(const Device& device, int64_t bytes) {
  select(device);
  void* data = nullptr;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const cudaError_t result = cudaMalloc(&data, size);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // clears the error; the caller reports it
    return nullptr;
  }
  check_cuda(result, "cudaMalloc");
  check_cuda(cudaMemset(data, 0, size), "cudaMemset");
  // cudaMemset ran on the legacy stream, for which our streams do not wait.
  check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");
  return data;
}

// cudaFree waits for all work of the device. While an exception unwinds, that work may include a collective
// that other ranks never join. The process ends soon, so leak the memory.
void release(const Device& device, void* data) noexcept {
  if (std::uncaught_exceptions() > 0) return;
  static_cast<void>(cudaSetDevice(device.index));
  static_cast<void>(cudaFree(data));
}

void* allocate_pinned(const Device& device, int64_t bytes) {
  select(device);
  void* data = nullptr;
  const cudaError_t result =
      cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocDefault);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check_cuda(result, "cudaHostAlloc");
  return data;
}

// cudaFreeHost waits for the device, too: see release().
void release_pinned(const Device& device, void* data) noexcept {
  if (std::uncaught_exceptions() > 0) return;
  static_cast<void>(cudaSetDevice(device.index));
  static_cast<void>(cudaFreeHost(data));
}

cudaMemoryType memory_type(const void* data) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type;
}

// Plain host memory, unknown to CUDA, has the type cudaMemoryTypeUnregistered.
bool is_host(cudaMemoryType type) {
  return type != cudaMemoryTypeDevice && type != cudaMemoryTypeManaged;
}

void copy(const Stream& stream, void* to, const void* from, int64_t bytes) {
  // Each thread has its own current device, and threads that save checkpoints copy, too.
  select(stream.device());
  CudaStream& cuda = cuda_stream(stream);
  const cudaMemoryType target = memory_type(to);
  const bool to_host = is_host(target), from_host = is_host(memory_type(from));
  if (to_host && from_host) {
    // The host makes the copy, so all earlier work of the stream must be done.
    stream.synchronize();
    std::memmove(to, from, static_cast<size_t>(bytes));
  } else if (target == cudaMemoryTypeHost) {
    // `to` is pinned memory, which the GPU writes without the host.
    check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, cuda.native()),
               "cudaMemcpyAsync");
  } else if (to_host) {
    cuda.to_host(to, from, bytes);
  } else if (from_host) {
    cuda.from_host(to, from, bytes);
  } else {
    check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, cuda.native()),
               "cudaMemcpyAsync");
  }
}

void* make_stream(const Device& device, bool urgent) {
  return new CudaStream(device.index, urgent);
}
void end_stream(const Device&, void* stream) noexcept {
  delete static_cast<CudaStream*>(stream);
}
void synchronize(const Device&, void* stream) {
  static_cast<CudaStream*>(stream)->synchronize();
}
std::vector<std::string> take_notes(void* stream) {
  return static_cast<CudaStream*>(stream)->take_notes();
}

void* make_event(const Device& device) {
  select(device);
  return new CudaEvent();
}
void end_event(const Device&, void* event) noexcept {
  delete static_cast<CudaEvent*>(event);
}
void record(const Device&, void* event, void* stream) {
  static_cast<CudaEvent*>(event)->record(static_cast<CudaStream*>(stream)->native());
}
void make_wait(const Device&, void* event, void* stream) {
  static_cast<CudaEvent*>(event)->make_wait(static_cast<CudaStream*>(stream)->native());
}

cudaStream_t new_stream(int device, bool urgent) {
  select(Device::cuda(device));
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  // Non-blocking: no implicit order with the legacy stream, so gathers and kernels can overlap.
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
             "cudaStreamCreate");
  return stream;
}

}  // namespace

void check_cuda(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  throw Error(is_bug(result) ? ExitCode::kBug : ExitCode::kResources,
              fmt::format("{}: {} ({})", call, cudaGetErrorString(result), cudaGetErrorName(result)),
              is_bug(result)
                  ? "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer show which kernel it was"
                  : "`ripstop doctor` shows driver, GPUs and the versions that ripstop was built for");
}

bool CudaEvent::is_reached() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result != cudaErrorNotReady) check_cuda(result, "cudaEventQuery");
  return result == cudaSuccess;
}

double CudaEvent::milliseconds_since(const CudaEvent& begin) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds);
}

CudaStream::CudaStream(int device, bool urgent) : device_(device), native_(new_stream(device, urgent)) {}

CudaStream::~CudaStream() {
  // Destroying cuDNN's handles waits for the device, too, so leak them (see `release`).
  if (std::uncaught_exceptions() > 0) {
    static_cast<void>(new auto(std::move(states_)));
    return;
  }
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaStreamSynchronize(native_));
  states_.clear();
  for (StagingBuffer& buffer : staging_)
    if (buffer.memory != nullptr) static_cast<void>(cudaFreeHost(buffer.memory));
  static_cast<void>(cudaStreamDestroy(native_));
}

void CudaStream::note(const std::string& what, const std::string& why) {
  if (noted_.insert(what).second) notes_.push_back(what + ": " + why);
}

void CudaStream::synchronize() {
  end_.record(native_);
  wait_for(end_);
}

void CudaStream::wait_for(const CudaEvent& event) {
  const std::shared_ptr<CudaWaiter> waiter = waiter_.lock();
  // Without other ranks there is no waiter.
  if (waiter == nullptr) return event.synchronize();
  waiter->await([&] { return event.is_reached(); });
}

void CudaStream::next_staging() {
  staging_[current_].left.record(native_);
  current_ = (current_ + 1) % kStagingBuffers;
  used_ = 0;
  wait_for(staging_[current_].left);
}

// Returns pinned memory that no earlier copy still reads or writes.
std::byte* CudaStream::room(int64_t bytes) {
  if (staging_[0].memory == nullptr)
    for (StagingBuffer& buffer : staging_)
      check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&buffer.memory), kStagingBytes, cudaHostAllocDefault),
                 "cudaHostAlloc");
  if (used_ + bytes > kStagingBytes) next_staging();
  std::byte* place = staging_[current_].memory + used_;
  used_ += round_up(bytes, kMemoryAlignment);
  return place;
}

void CudaStream::from_host(void* to, const void* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kStagingBytes) {
    const int64_t part = std::min(kStagingBytes, bytes - at);
    const auto size = static_cast<size_t>(part);
    std::byte* place = room(part);
    std::memcpy(place, static_cast<const std::byte*>(from) + at, size);
    check_cuda(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + at, place, size, cudaMemcpyHostToDevice, native_),
        "cudaMemcpyAsync");
  }
}

// The GPU copies one part into pinned memory while the host copies the previous part out.
void CudaStream::to_host(void* to, const void* from, int64_t bytes) {
  struct Arriving {
    std::byte* place = nullptr;
    int64_t at = 0, bytes = 0;
    size_t buffer = 0;
  } before;
  const auto take = [&](const Arriving& part) {
    if (part.place == nullptr) return;
    wait_for(staging_[part.buffer].left);
    std::memcpy(static_cast<std::byte*>(to) + part.at, part.place, static_cast<size_t>(part.bytes));
  };
  for (int64_t at = 0; at < bytes; at += kStagingBytes) {
    const int64_t part = std::min(kStagingBytes, bytes - at);
    std::byte* place = room(part);
    const Arriving now{place, at, part, current_};
    check_cuda(cudaMemcpyAsync(place, static_cast<const std::byte*>(from) + at, static_cast<size_t>(part),
                               cudaMemcpyDeviceToHost, native_),
               "cudaMemcpyAsync");
    staging_[current_].left.record(native_);
    take(before);
    before = now;
  }
  take(before);
}

const MemorySource& cuda_host_memory() {
  static constexpr MemorySource source{.allocate = allocate_pinned, .release = release_pinned};
  return source;
}

const DeviceTable& cuda_device() {
  static constexpr DeviceTable table{.allocate = allocate,
                                     .release = release,
                                     .copy = copy,
                                     .make_stream = make_stream,
                                     .end_stream = end_stream,
                                     .synchronize = synchronize,
                                     .take_notes = take_notes,
                                     .make_event = make_event,
                                     .end_event = end_event,
                                     .record = record,
                                     .make_wait = make_wait,
                                     .open_range = open_range,
                                     .close_range = close_range,
                                     .start_profiler = start_profiler,
                                     .stop_profiler = stop_profiler};
  return table;
}

}  // namespace ripstop
