// A communicator of the emulated NCCL over all ranks of the test world, for tests that call NCCL themselves.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <thread>

#include "tests/parallel/rank_tests.h"

namespace ripstop {

/// The id that rank 0 made, on all ranks of `group`. Collective.
inline ncclUniqueId id_of(Communicator& group) {
  ncclUniqueId id{};
  if (group.rank() == 0) static_cast<void>(ncclGetUniqueId(&id));
  const Tensor bytes{&id, DType::kInt32, {static_cast<int64_t>(sizeof id / 4)}, Device::cpu()};
  group.broadcast(Stream(Device::cpu()), bytes, 0);
  return id;
}

/// A configuration without `blocking`.
inline ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Asks until the communicator is no longer in progress.
inline ncclResult_t poll(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) return asked;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  // The same as in parallel/nccl_group.cpp: NCCL before 2.26 is done only then.
  int ranks = 0;
  return state == ncclSuccess ? ncclCommCount(comm, &ranks) : state;
}

/// A communicator over `group`, ready. Collective.
inline ncclComm_t make_comm(Communicator& group) {
  static_cast<void>(cudaSetDevice(static_cast<int>(group.rank())));
  ncclConfig_t config = not_blocking();
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = id_of(group);
  static_cast<void>(ncclCommInitRankConfig(&comm, static_cast<int>(group.size()), id,
                                           static_cast<int>(group.rank()), &config));
  static_cast<void>(poll(comm));
  return comm;
}

}  // namespace ripstop
