#include "parallel/nccl_library.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <exception>

#include "model/device/cuda_device.h"
#include "parallel/communicator.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
#define RIPSTOP_NCCL_WINDOWS
// Weak symbols let the program start even if the library at run time is older and lacks these functions.
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#endif

namespace ripstop {
namespace {

int running_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

// Whether ncclMemAlloc of `bytes` bytes probably failed for lack of memory. NCCL gives no reason, and calls
// the driver directly, so cudaGetLastError may not know. NCCL rounds up to pages of at most 512 MiB.
bool lacks_memory(size_t bytes) {
  constexpr size_t kLargestPage = size_t{512} << 20;
  if (cudaGetLastError() == cudaErrorMemoryAllocation) return true;
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free < bytes + kLargestPage;
}

void* allocate(const Device& device, int64_t bytes) {
  check_cuda(cudaSetDevice(device.index), "cudaSetDevice");
  void* data = nullptr;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const ncclResult_t result = ncclMemAlloc(&data, size);
  if (result != ncclSuccess) {
    if (lacks_memory(size)) return nullptr;
    throw Error(ExitCode::kResources,
                fmt::format("ncclMemAlloc of {} bytes: {}: {}", bytes, ncclGetErrorString(result),
                            ncclGetLastError(nullptr)),
                "NCCL_DEBUG=WARN makes NCCL say more");
  }
  // Padding is summed and sent along with the elements, so it must be zero.
  check_cuda(cudaMemset(data, 0, size), "cudaMemset");
  // Wait here, because other streams do not wait for the legacy stream.
  check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");
  return data;
}

// ncclMemFree, unlike cudaFree, does not wait for kernels that use the memory, so wait first. While an
// exception unwinds, keep the memory, because a collective may still wait for ranks that are gone.
void release(const Device& device, void* data) noexcept {
  if (std::uncaught_exceptions() > 0) return;
  static_cast<void>(cudaSetDevice(device.index));
  static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(ncclMemFree(data));
}

}  // namespace

ncclConfig_t nccl_config([[maybe_unused]] const char* name, bool beside_kernels) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Calls return at once, so that a missing rank leads to our deadline and not to a hang.
  config.blocking = 0;
  // Groups that share resources could block each other.
  config.splitShare = 0;
  if (beside_kernels) {
    config.maxCTAs = 16;
    config.cgaClusterSize = 2;
  }
#ifdef RIPSTOP_NCCL_WINDOWS
  config.commName = name;
#endif
#ifdef NCCL_CTA_POLICY_ZERO
  if (beside_kernels && running_version() >= NCCL_VERSION(2, 28, 0)) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
  return config;
}

const MemorySource& nccl_memory() {
  static constexpr MemorySource source{.allocate = allocate, .release = release};
  return source;
}

#ifdef RIPSTOP_NCCL_WINDOWS
ncclResult_t register_window(ncclComm_t comm, void* data, int64_t bytes, void** window) {
  *window = nullptr;
  if (running_version() < NCCL_VERSION(2, 27, 3)) return ncclSuccess;
  return ncclCommWindowRegister(comm, data, static_cast<size_t>(bytes),
                                reinterpret_cast<ncclWindow_t*>(window), NCCL_WIN_COLL_SYMMETRIC);
}
ncclResult_t deregister_window(ncclComm_t comm, void* window) {
  return ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(window));
}
#else
ncclResult_t register_window(ncclComm_t, void*, int64_t, void** window) {
  *window = nullptr;
  return ncclSuccess;
}
ncclResult_t deregister_window(ncclComm_t, void*) {
  return ncclSuccess;
}
#endif

CudaLibrary nccl_library() {
  const auto text = [](int v) { return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100); };
  const int running = running_version();
  return {"NCCL", "2.19", text(NCCL_VERSION_CODE), running == 0 ? "" : text(running)};
}

}  // namespace ripstop
