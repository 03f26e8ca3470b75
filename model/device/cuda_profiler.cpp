// What profilers are told: named ranges (NVTX, headers alone; without a profiler a call finds out that there
// is none and returns) and the steps that they shall collect.
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include <exception>

#include "model/device/cuda_device.h"

namespace ripstop {

void open_range(const char* name) {
  static_cast<void>(nvtxRangePushA(name));
}

void close_range() noexcept {
  static_cast<void>(nvtxRangePop());
}

void start_profiler(const Device& device) {
  check_cuda(cudaSetDevice(device.index), "cudaSetDevice");
  check_cuda(cudaProfilerStart(), "cudaProfilerStart");
}

// The profiler may wait for work under way, which while an exception unwinds could be for ever.
void stop_profiler(const Device&) noexcept {
  if (std::uncaught_exceptions() > 0) return;
  static_cast<void>(cudaProfilerStop());
}

}  // namespace ripstop
