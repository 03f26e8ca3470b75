// Index of the CUDA back end: every row and where it is.
#include "model/kernels/cuda/cuda_kernels.h"

namespace ripstop {

const KernelTable& cuda_kernels() {
  static constexpr KernelTable table{
      .linear = cuda::linear,
      .linear_backward_input = cuda::linear_backward_input,
      .linear_backward_weight = cuda::linear_backward_weight,
      .add_rmsnorm = cuda::add_rmsnorm,
      .add_rmsnorm_backward = cuda::add_rmsnorm_backward,
      .rope = cuda::rope,
      .attention = cuda::attention,
      .attention_backward = cuda::attention_backward,
      .store_key_value = cuda::store_key_value,
      .attention_cached = cuda::attention_cached,
      .swiglu = cuda::swiglu,
      .swiglu_backward = cuda::swiglu_backward,
      .embedding = cuda::embedding,
      .embedding_backward = cuda::embedding_backward,
      .gather_rows = cuda::gather_rows,
      .scatter_rows = cuda::scatter_rows,
      .cross_entropy_statistics = cuda::cross_entropy_statistics,
      .cross_entropy = cuda::cross_entropy,
      .argmax_rows = cuda::argmax_rows,
      .add_sum = cuda::add_sum,
      .add_squared_norm = cuda::add_squared_norm,
      .fill_zero = cuda::fill_zero,
      .convert = cuda::convert,
      .add = cuda::add,
      .reduce_pieces = cuda::reduce_pieces,
      .gradient_scale = cuda::gradient_scale,
      .adamw = cuda::adamw,
  };
  return table;
}

}  // namespace ripstop
