// The op tests of tests/model on a GPU, once with the fastest order of sums and once with a fixed order.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/model/op_test.h"

namespace ripstop {

std::vector<OpCase> op_cases() {
  return gpu_op_cases(/*slow=*/false);
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
