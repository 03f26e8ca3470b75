// The kernel table of the CUDA back end: own_kernels(), with linear products by cuBLASLt and attention by
// cuDNN.
#include "model/kernels/cuda/cuda_kernels.h"

namespace ripstop {

const KernelTable& cuda_kernels() {
  static constexpr KernelTable table = [] {
    KernelTable rows = cuda::own_kernels();
    rows.linear = cuda::linear;
    rows.linear_backward_input = cuda::linear_backward_input;
    rows.linear_backward_weight = cuda::linear_backward_weight;
    rows.attention = cuda::attention;
    rows.attention_backward = cuda::attention_backward;
    rows.prepare_attention = cuda::prepare_attention;
    return rows;
  }();
  return table;
}

}  // namespace ripstop
