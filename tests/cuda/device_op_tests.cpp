// The op tests of tests/model on a GPU, once with the fastest order of sums and once with a fixed order.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/model/op_test.h"

namespace ripstop {

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const bool deterministic : {false, true})
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      Device device = Device::cuda(0);
      device.deterministic = deterministic;
      cases.push_back({.name = fmt::format("{}{}", deterministic ? "deterministic_" : "", to_string(dtype)),
                       .device = device,
                       .kernels = &cuda_kernels(),
                       .workspaces = &cuda_workspaces(),
                       .dtype = dtype,
                       .set_variation = [](int) {},
                       .threads_matter = !deterministic,
                       .repeatable = deterministic});
    }
  return cases;
}

}  // namespace ripstop

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // as tests/cuda/CMakeLists.txt tells ctest
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU (%s)\n", cudaGetErrorString(found));
    return kSkipped;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
