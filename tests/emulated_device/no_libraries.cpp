// For tests on a fake run time: no libraries for kernels, which cost seconds to load.
#include "model/device/cuda_machine.h"

namespace ripstop {

std::vector<CudaLibrary> cuda_kernel_libraries() {
  return {};
}

}  // namespace ripstop
