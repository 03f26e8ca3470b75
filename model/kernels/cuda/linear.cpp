// y = x w^T and its gradients with cuBLASLt: bfloat16 or float32 operands, sums in float32 (no TF32). To
// accumulate, cuBLASLt itself adds to the output (beta = 1).
#include "model/device/cuda_device.h"
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/gemm_plans.h"

namespace ripstop::cuda {
namespace {

void multiply(const KernelCall& call, const Gemm& gemm, const Tensor& a, const Tensor& b, const Tensor& d,
              Accumulate accumulate) {
  if (gemm.m == 0 || gemm.n == 0) return;
  CudaStream& stream = cuda_stream(call.stream);
  if (gemm.k > 0) {
    stream.state<GemmPlans>().multiply(call, gemm, a.data, b.data, d.data, accumulate);
  } else if (accumulate == Accumulate::kNo) {  // cuBLASLt refuses k = 0
    check_cuda(cudaMemsetAsync(d.data, 0, static_cast<size_t>(d.bytes()), stream.native()),
               "cudaMemsetAsync");
  }
}

}  // namespace

void linear(const KernelCall& call, const Tensor& x, const Tensor& w, const Tensor& y,
            Accumulate accumulate) {
  multiply(call, forward_gemm(x, w, y), w, x, y, accumulate);
}

void linear_backward_input(const KernelCall& call, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           Accumulate accumulate) {
  multiply(call, backward_input_gemm(dy, w, dx), w, dy, dx, accumulate);
}

void linear_backward_weight(const KernelCall& call, const Tensor& dy, const Tensor& x, const Tensor& dw,
                            Accumulate accumulate) {
  multiply(call, backward_weight_gemm(dy, x, dw), x, dy, dw, accumulate);
}

}  // namespace ripstop::cuda
