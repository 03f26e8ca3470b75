// NVTX is a header-only library, whose calls return at once if there is no profiler.
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

// cudaProfilerStop may wait for running work. While an exception unwinds, that work may never end.
void stop_profiler(const Device&) noexcept {
  if (std::uncaught_exceptions() > 0) return;
  static_cast<void>(cudaProfilerStop());
}

}  // namespace ripstop
