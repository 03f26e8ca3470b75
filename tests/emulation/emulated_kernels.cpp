#include "tests/emulation/emulated_kernels.h"

#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"

namespace ripstop::cuda {

// Whoever sets how kernels are launched finds the CUDA stream in the handle; on the CPU it is null.
cudaStream_t native_stream(const KernelCall& call) {
  return call.stream.handle();
}

void check(cudaError_t result, const char* call) {
  RIPSTOP_CHECK(result == cudaSuccess, "{} failed", call);
}

}  // namespace ripstop::cuda

namespace emulation {

namespace cuda = ripstop::cuda;

const ripstop::KernelTable& kernels() {
#define RIPSTOP_NONE(kernel) .kernel = nullptr,
#define RIPSTOP_OWN(kernel) .kernel = cuda::kernel,
  static constexpr ripstop::KernelTable table = [] {
    ripstop::KernelTable own{RIPSTOP_PRODUCTS(RIPSTOP_NONE) RIPSTOP_OTHER_KERNELS(RIPSTOP_OWN)};
    own.attention = cuda::plain_attention;
    own.attention_backward = cuda::plain_attention_backward;
    own.prepare_attention = [](const ripstop::Stream&, const ripstop::AttentionSizes&, ripstop::Direction) {
      return int64_t{0};
    };
    return own;
  }();
#undef RIPSTOP_NONE
#undef RIPSTOP_OWN
  return table;
}

void locate_documents(const ripstop::KernelCall& call, const ripstop::Documents& documents,
                      const ripstop::Heads& heads, const cuda::RaggedOffsets& offsets) {
  cuda::locate_documents(call, documents, heads, offsets);
}
void log_sum_exp_by_place(const ripstop::KernelCall& call, const ripstop::Documents& documents,
                          const cuda::DocumentGroup& group, int64_t length,
                          const ripstop::Tensor& log_sum_exp, float* by_place) {
  cuda::log_sum_exp_by_place(call, documents, group, length, log_sum_exp, by_place);
}
void log_sum_exp_by_row(const ripstop::KernelCall& call, const ripstop::Documents& documents,
                        const cuda::DocumentGroup& group, int64_t length, const float* by_place,
                        const ripstop::Tensor& log_sum_exp) {
  cuda::log_sum_exp_by_row(call, documents, group, length, by_place, log_sum_exp);
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
