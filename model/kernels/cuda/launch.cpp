// The emulation of the kernels on the CPU replaces this file.
#include "model/kernels/cuda/launch.h"

#include "model/device/cuda_device.h"

namespace ripstop::cuda {

cudaStream_t native_stream(const KernelCall& call) {
  return ripstop::native_stream(call.stream);
}

void check(cudaError_t result, const char* call) {
  check_cuda(result, call);
}

}  // namespace ripstop::cuda
