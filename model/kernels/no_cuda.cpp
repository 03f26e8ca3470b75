// Linked instead of kernels/cuda/ if ripstop is built without CUDA.
#include "model/ops/kernel_table.h"

namespace ripstop {

const KernelTable& cuda_kernels() {
  throw Error(ExitCode::kResources, "this ripstop was built without CUDA",
              "build the preset cuda, or set run.device = \"cpu\"");
}

}  // namespace ripstop
