// Linked in place of kernels/cuda/ where CUDA is not built in.
#include "model/ops/kernel_table.h"

namespace ripstop {

const KernelTable& cuda_kernels() {
  throw Error(ExitCode::kResources, "this ripstop was built without CUDA",
              "build the preset cuda, or set run.device = \"cpu\"");
}

}  // namespace ripstop
