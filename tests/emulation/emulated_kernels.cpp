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

const RaggedKernels& ragged() {
  static constexpr RaggedKernels table{.locate_documents = cuda::locate_documents,
                                       .log_sum_exp_by_place = cuda::log_sum_exp_by_place,
                                       .log_sum_exp_by_row = cuda::log_sum_exp_by_row,
                                       .join_gradients = cuda::join_gradients,
                                       .single_row_gradients = cuda::single_row_gradients};
  return table;
}

}  // namespace emulation
