// What profilers are told: named ranges (NVTX, headers alone; without a profiler a call finds out that there
// is none and returns) and the steps that they shall collect.
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

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

void stop_profiler(const Device&) noexcept {
  static_cast<void>(cudaProfilerStop());
}

}  // namespace ripstop
