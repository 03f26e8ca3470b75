#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "model/device/cuda_device.h"
#include "parallel/communicator.h"

namespace ripstop {

struct OpenCollective {
  const char* operation;
  int64_t sequence;  ///< number among the rank's collectives
  CudaEvent end{};   ///< reached when the collective is done
};

class NcclGroup;

/// The state that all groups of a rank share. The host waits for collectives through await(), so that the
/// loss of another rank ends the wait.
class NcclWorld final : public CudaWaiter {
 public:
  void await(FunctionRef<bool()> done) override;

  std::vector<NcclGroup*> groups;
  int64_t sequence = 0;
};

/// A group's NCCL communicator, the same group on the host, and a stream for its collectives.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<NcclWorld> world, std::unique_ptr<Communicator> host, int device);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Makes the NCCL communicator: a new one, or a part of `whole`. Collective over the group, or over
  /// `whole`. `deterministic`: sums have a fixed order. NCCL reads its settings once, so `deterministic` of
  /// the first group of the process decides.
  void initialize(bool deterministic);
  void initialize_part(NcclGroup& whole, int64_t color, int64_t key);

  /// Throws Error(kCommunication) unless `result` of the NCCL function `call` means success. First waits
  /// until NCCL's own thread has done the host's part of the call.
  void check(ncclResult_t result, const char* call);
  /// Calls start(place), after which a thread of NCCL writes *place. Waits until this group reports success,
  /// and returns *place. Throws the errors of check().
  void* wait_for_result(const char* call, FunctionRef<ncclResult_t(void** place)> start);
  /// Throws Error(kCommunication) if a peer or the network has failed.
  void check_health();
  /// Ends the NCCL communicator and its collectives without waiting for other ranks.
  void abort();

  /// Call begin() before a collective is given to stream(), and end() after it. The collective begins when
  /// the event `behind` is reached or, if that is null, when the stream `caller` has reached begin().
  void begin(const Stream& caller, const Event* behind = nullptr);
  std::shared_ptr<OpenCollective> end(const char* operation);

  /// The oldest collective that is not done, or null.
  const OpenCollective* oldest();

  std::unique_ptr<Registration> register_memory(void* data, int64_t bytes);

  const std::shared_ptr<NcclWorld>& world() const { return world_; }
  Communicator& host() const { return *host_; }
  const Stream& stream() const { return stream_; }
  cudaStream_t native() const { return native_stream(stream_); }
  /// Null after abort(), and if a split gave this rank no communicator.
  ncclComm_t comm() const { return comm_; }

 private:
  ncclConfig_t config() const;
  void finish();

  std::shared_ptr<NcclWorld> world_;
  std::unique_ptr<Communicator> host_;
  Stream stream_;
  CudaEvent issued_;
  ncclComm_t comm_ = nullptr;
  std::deque<void*> results_;  ///< places for wait_for_result(), at fixed addresses
  std::deque<std::shared_ptr<OpenCollective>> open_;
};

}  // namespace ripstop
