// In model/, this folder alone includes the headers of cuBLASLt and cuDNN.
#include <cublasLt.h>
#include <cudnn_graph.h>

#include <fmt/format.h>

#include "model/device/cuda_machine.h"
#include "model/kernels/cuda/attention_plans.h"

namespace ripstop {
namespace {

// Returns "13.1.0" for 130100 and "9.19.0" for 91900.
std::string version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace

std::vector<CudaLibrary> cuda_kernel_libraries() {
  return {{"cuBLASLt", "12.0", fmt::format("{}.{}.{}", CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH),
           version_text(cublasLtGetVersion())},
          {"cuDNN", version_text(cuda::kOldestCudnn), version_text(CUDNN_VERSION),
           version_text(cudnnGetVersion())}};
}

}  // namespace ripstop
