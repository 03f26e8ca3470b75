// Declarations that files of the CUDA back end share.
#pragma once
#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <set>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/core/function_ref.h"
#include "model/device/device.h"

namespace ripstop {

/// Throws unless `result` is cudaSuccess: Error(kBug) if an argument or a kernel is wrong, else
/// Error(kResources). The error may belong to earlier asynchronous work. The message names `call`.
void check_cuda(cudaError_t result, const char* call);

/// An event of the calling thread's current device. While an exception unwinds, the destructor leaks it.
class CudaEvent {
 public:
  /// By default the event takes no time stamp: it then costs less to record and to wait for.
  explicit CudaEvent(unsigned flags = cudaEventDisableTiming) {
    check_cuda(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
  }
  ~CudaEvent() {
    if (std::uncaught_exceptions() == 0) static_cast<void>(cudaEventDestroy(event_));
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream) const { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  void make_wait(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }
  /// Whether the work before the event is done. Throws errors of earlier work.
  bool is_reached() const;
  void synchronize() const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  /// Both events must take time stamps (cudaEventDefault) and be reached.
  double milliseconds_since(const CudaEvent& begin) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// Entries of the DeviceTable, in cuda_profiler.cpp.
void open_range(const char* name);
void close_range() noexcept;
void start_profiler(const Device& device);
void stop_profiler(const Device& device) noexcept;

/// Makes the host wait, with a deadline, for work that may depend on other ranks.
class CudaWaiter {
 public:
  virtual ~CudaWaiter() = default;
  /// Returns when `done()` is true. Throws if the deadline passes or another rank failed.
  virtual void await(FunctionRef<bool()> done) = 0;
};

/// The handle() of a Stream on kCuda: the native stream, and what belongs to it.
class CudaStream {
 public:
  CudaStream(int device, bool urgent);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t native() const { return native_; }
  int device() const { return device_; }

  /// Makes the host wait for this stream through `waiter`, as long as `waiter` lives.
  void set_waiter(std::weak_ptr<CudaWaiter> waiter) { waiter_ = std::move(waiter); }
  void synchronize();

  /// Adds the note "WHAT: WHY" for the user, see Stream::take_notes. Keeps only the first reason for each
  /// `what`, since a library may phrase its reason differently each time.
  void note(const std::string& what, const std::string& why);
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

  /// This stream's object of type T, constructed as T(device) on first use and destroyed with the stream.
  /// Meant for handles and plans of libraries, which belong to one thread and one stream.
  template <class T>
  T& state() {
    std::shared_ptr<void>& state = states_[std::type_index(typeid(T))];
    if (state == nullptr) state = std::make_shared<T>(device_);
    return *static_cast<T*>(state.get());
  }

  /// Copy between host memory and the device in stream order, through pinned staging buffers. from_host()
  /// returns when `from` has been read, and waits for earlier work if the staging buffers are full. to_host()
  /// returns when `to` has been written.
  void from_host(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);

 private:
  // Pinned memory. At the event `left`, all copies to and from the buffer are done, and it may be used again.
  struct StagingBuffer {
    std::byte* memory = nullptr;
    CudaEvent left;
  };
  static constexpr int64_t kStagingBytes = int64_t{4} << 20;
  // Several buffers let the host fill one while the GPU copies from another.
  static constexpr size_t kStagingBuffers = 4;
  void wait_for(const CudaEvent& event);
  void next_staging();
  std::byte* room(int64_t bytes);

  int device_;
  cudaStream_t native_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> states_;
  StagingBuffer staging_[kStagingBuffers];
  size_t current_ = 0;
  int64_t used_ = 0;
  CudaEvent end_;  ///< recorded by synchronize(), which waits for it
  std::weak_ptr<CudaWaiter> waiter_;
  std::set<std::string> noted_;
  std::vector<std::string> notes_;  ///< notes that take_notes() has not returned yet
};

inline CudaStream& cuda_stream(const Stream& stream) {
  return *static_cast<CudaStream*>(stream.handle());
}

inline cudaStream_t native_stream(const Stream& stream) {
  return cuda_stream(stream).native();
}

}  // namespace ripstop
