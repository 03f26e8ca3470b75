// NcclGroup: a group of ranks over NCCL, and the host's watch over its collectives under way.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include "model/device/cuda_device.h"
#include "parallel/communicator.h"

namespace ripstop {

/// A CUDA event that one stream records and another waits for.
class CudaEvent {
 public:
  explicit CudaEvent(unsigned flags) {
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
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A collective that the host has given to the GPU.
struct OpenCollective {
  const char* operation;
  int64_t sequence;
  CudaEvent end{cudaEventDisableTiming};
};

class NcclGroup;

/// The state that all groups of one rank share, which orders their collectives under way. All waits of the
/// host for streams that issued collectives go through `await`, so that a lost rank ends them.
class NcclWorld final : public CudaWaiter {
 public:
  void await(FunctionRef<bool()> done) override;

  std::vector<NcclGroup*> groups;
  int64_t sequence = 0;
};

/// A group of ranks, for the operations on it: NCCL's communicator, the same group on the host, and a stream
/// of its own.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<NcclWorld> world, std::unique_ptr<Communicator> host, int device);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Makes the NCCL communicator: a new one, or a part of another group's. Collective over the group, or over
  /// the other group. `deterministic`: sums of all groups of this process have a fixed order. NCCL reads its
  /// settings once, so the first group of the process decides.
  void initialize(bool deterministic);
  void initialize_part(NcclGroup& whole, int64_t color, int64_t key);

  /// Throws Error(kCommunication) unless `result`, which `call` returned, is success. If NCCL goes on in the
  /// background, waits until it has done the host's part.
  void check(ncclResult_t result, const char* call);
  /// Calls `start` with a place that NCCL writes from a thread of its own, at the latest when this group
  /// reports success. Waits for that and returns what was written. Errors as `check`.
  void* wait_for_result(const char* call, FunctionRef<ncclResult_t(void** place)> start);
  /// Throws Error(kCommunication) if a peer or the network has failed.
  void check_health();
  /// Ends the NCCL communicator and its collectives under way without waiting for other ranks.
  void abort();

  /// Call these before and after giving a collective to `stream()`. The collective begins when the stream
  /// `caller` has come to this point.
  void begin(const Stream& caller);
  std::shared_ptr<OpenCollective> end(const char* operation);

  /// The oldest collective that is not done, or null if there is none.
  const OpenCollective* oldest();

  /// Communicator::register_memory.
  std::unique_ptr<Registration> register_memory(void* data, int64_t bytes);

  const std::shared_ptr<NcclWorld>& world() const { return world_; }
  Communicator& host() const { return *host_; }
  const Stream& stream() const { return stream_; }
  cudaStream_t native() const { return native_stream(stream_); }
  /// Null if this rank got none, and after `abort`.
  ncclComm_t comm() const { return comm_; }

 private:
  ncclConfig_t config() const;
  void finish();

  std::shared_ptr<NcclWorld> world_;
  std::unique_ptr<Communicator> host_;
  Stream stream_;
  CudaEvent issued_{cudaEventDisableTiming};
  ncclComm_t comm_ = nullptr;
  std::deque<void*> results_;  ///< of wait_for_result: their addresses never change
  std::deque<std::shared_ptr<OpenCollective>> open_;
};

}  // namespace ripstop
