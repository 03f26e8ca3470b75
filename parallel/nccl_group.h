// Groups of ranks that NCCL knows, and the host's watch over what they have under way.
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

/// An event of the driver.
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

/// A collective that was given to the GPU.
struct OpenCollective {
  const char* operation;
  int64_t sequence;
  CudaEvent end{cudaEventDisableTiming};
};

class NcclGroup;

/// What the groups of one rank share: which collectives are under way, in the order they were issued. Host
/// waits of all streams that collectives were issued from come through here.
class NcclWorld final : public CudaWaiter {
 public:
  void await(FunctionRef<bool()> done) override;

  std::vector<NcclGroup*> groups;
  int64_t sequence = 0;
};

/// A group as its operations see it: NCCL's communicator, the same ranks on the host, and a stream of its
/// own.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<NcclWorld> world, std::unique_ptr<Communicator> host, int device);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Collective calls of the whole group: make the NCCL communicator, or a part of another group's.
  void initialize();
  void initialize_part(NcclGroup& whole, int64_t color, int64_t key);

  /// What `call` returned; where NCCL goes on in the background, waits until it is through with the host's
  /// part.
  void check(ncclResult_t result, const char* call);
  /// Throws where a peer or the network failed since.
  void check_health();

  /// Brackets what is given to `stream()`: it begins when `caller` has come here.
  void begin(const Stream& caller);
  std::shared_ptr<OpenCollective> end(const char* operation);

  /// The oldest collective that is not done, or null.
  const OpenCollective* oldest();

  /// Communicator::register_memory.
  std::unique_ptr<Registration> register_memory(void* data, int64_t bytes);

  const std::shared_ptr<NcclWorld>& world() const { return world_; }
  Communicator& host() const { return *host_; }
  const Stream& stream() const { return stream_; }
  cudaStream_t native() const { return native_stream(stream_); }
  ncclComm_t comm() const { return comm_; }

 private:
  ncclConfig_t config() const;

  std::shared_ptr<NcclWorld> world_;
  std::unique_ptr<Communicator> host_;
  Stream stream_;
  CudaEvent issued_{cudaEventDisableTiming};
  ncclComm_t comm_ = nullptr;
  std::deque<std::shared_ptr<OpenCollective>> open_;
};

}  // namespace ripstop
