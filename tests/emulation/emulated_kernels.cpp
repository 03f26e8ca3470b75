#include "tests/emulation/emulated_kernels.h"

#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"

namespace ripstop::cuda {

cudaStream_t native_stream(const KernelCall&) {
  return nullptr;
}

void check(cudaError_t result, const char* call) {
  RIPSTOP_CHECK(result == cudaSuccess, "{} failed", call);
}

}  // namespace ripstop::cuda

namespace emulation {

namespace cuda = ripstop::cuda;

const ripstop::KernelTable& kernels() {
  static constexpr ripstop::KernelTable table{
      .linear = nullptr,
      .linear_backward_input = nullptr,
      .linear_backward_weight = nullptr,
      .add_rmsnorm = cuda::add_rmsnorm,
      .add_rmsnorm_backward = cuda::add_rmsnorm_backward,
      .rope = cuda::rope,
      .attention = cuda::plain_attention,
      .attention_backward = cuda::plain_attention_backward,
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

void locate_documents(const ripstop::KernelCall& call, const ripstop::Documents& documents,
                      const ripstop::Heads& heads, const cuda::RaggedOffsets& offsets) {
  cuda::locate_documents(call, documents, heads, offsets);
}
void join_gradients(const ripstop::KernelCall& call, const cuda::SeparateGradients& gradients,
                    const ripstop::Heads& heads, const ripstop::Tensor& dqkv) {
  cuda::join_gradients(call, gradients, heads, dqkv);
}
void single_row_gradients(const ripstop::KernelCall& call, const ripstop::Documents& documents,
                          const ripstop::Heads& heads, const ripstop::Tensor& dout,
                          const ripstop::Tensor& dqkv) {
  cuda::single_row_gradients(call, documents, heads, dout, dqkv);
}

}  // namespace emulation
