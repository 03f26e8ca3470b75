#include "model/kernels/cuda/cuda_kernels.h"

namespace ripstop {

const KernelTable& cuda_kernels() {
#define RIPSTOP_ENTRY(kernel) .kernel = cuda::kernel,
  static constexpr KernelTable table{RIPSTOP_PRODUCTS(RIPSTOP_ENTRY) RIPSTOP_OTHER_KERNELS(RIPSTOP_ENTRY)};
#undef RIPSTOP_ENTRY
  return table;
}

}  // namespace ripstop
