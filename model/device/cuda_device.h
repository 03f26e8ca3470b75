// What the files of the CUDA back end share: checked calls, the native handle of a stream, and state that
// lives as long as a stream.
#pragma once
#include <cuda_runtime_api.h>

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

/// Throws unless `result` is cudaSuccess: Error(kBug) where an argument or a kernel is wrong (among them
/// errors of kernels launched earlier, as these are reported by whichever call comes next), else
/// Error(kResources). `call` is what the message names.
void check_cuda(cudaError_t result, const char* call);

/// To be called after every `<<<...>>>`: throws where `kernel` could not be launched.
inline void check_launch(const char* kernel) {
  check_cuda(cudaGetLastError(), kernel);
}

/// Whether the work before the event is done. Throws the errors of work before, as every call does.
bool is_reached(cudaEvent_t event);

/// Of the DeviceTable: NVTX ranges, and what a profiler is told of when to collect. cuda_profiler.cpp.
void open_range(const char* name);
void close_range() noexcept;
void start_profiler(const Device& device);
void stop_profiler(const Device& device) noexcept;

/// How the host waits for work that may depend on other ranks: with a deadline, and with a look at their
/// errors.
class CudaWaiter {
 public:
  virtual ~CudaWaiter() = default;
  /// Returns when `done()` is true; throws where it will never be.
  virtual void await(FunctionRef<bool()> done) = 0;
};

/// What Stream::handle() points to on kCuda.
class CudaStream {
 public:
  /// `urgent`: as Stream's.
  CudaStream(int device, bool urgent);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t native() const { return native_; }
  int device() const { return device_; }

  /// From now on the host waits for this stream through `waiter`, as long as that lives.
  void set_waiter(std::weak_ptr<CudaWaiter> waiter) { waiter_ = std::move(waiter); }
  /// Blocks the host until all work given to this stream is done.
  void synchronize();

  /// Says "WHAT: WHY" to people, through Stream::take_notes. Of each `what` the first reason alone: a library
  /// may word its reason anew each time.
  void note(const std::string& what, const std::string& why);
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

  /// The T of this stream: made by `T(int device)` when it is first asked for, and gone with the stream. For
  /// handles and plans of libraries, which belong to one thread and one stream.
  template <class T>
  T& state() {
    std::shared_ptr<void>& state = states_[std::type_index(typeid(T))];
    if (state == nullptr) state = std::make_shared<T>(device_);
    return *static_cast<T*>(state.get());
  }

  /// Copies between host and device in stream order through pinned memory. `from_host` returns as soon as the
  /// host memory has been read, without a wait for the work before it unless the pinned memory is full;
  /// `to_host` returns when the host memory has been written.
  void from_host(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);

 private:
  // A piece of pinned memory: filled from the beginning, used again once `left` is reached.
  struct Piece {
    std::byte* memory = nullptr;
    cudaEvent_t left = nullptr;
  };
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;
  static constexpr size_t kPieces = 4;
  void wait_for(cudaEvent_t event);
  void make_pieces();
  void next_piece();
  std::byte* room(int64_t bytes);

  int device_;
  cudaStream_t native_ = nullptr;
  std::unordered_map<std::type_index, std::shared_ptr<void>> states_;
  Piece pieces_[kPieces];
  size_t piece_ = 0;
  int64_t used_ = 0;
  cudaEvent_t end_ = nullptr;  ///< of all work, while the host waits for it
  std::weak_ptr<CudaWaiter> waiter_;
  std::set<std::string> noted_;
  std::vector<std::string> notes_;  ///< those of them that nobody has taken
};

/// The CudaStream of a stream on kCuda.
inline CudaStream& cuda_stream(const Stream& stream) {
  return *static_cast<CudaStream*>(stream.handle());
}

/// What kernels are launched on and libraries are given.
inline cudaStream_t native_stream(const Stream& stream) {
  return cuda_stream(stream).native();
}

}  // namespace ripstop
