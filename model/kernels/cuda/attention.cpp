// Attention: bfloat16 on cuDNN where it takes the heads, everything else on kernels of our own.
#include "model/device/cuda_device.h"
#include "model/kernels/cuda/attention_plans.h"
#include "model/kernels/cuda/cuda_kernels.h"

namespace ripstop::cuda {

void attention(const KernelCall& call, const Tensor& qkv, const Documents& documents, const Heads& heads,
               const Tensor& out, const Tensor& log_sum_exp) {
  if (qkv.rows() == 0) return;
  const AttentionOperands operands{documents, heads, qkv, out, log_sum_exp};
  if (qkv.dtype == DType::kBFloat16 &&
      cuda_stream(call.stream).state<AttentionPlans>().forward(call, operands))
    return;
  plain_attention(call, qkv, documents, heads, out, log_sum_exp);
}

void attention_backward(const KernelCall& call, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Documents& documents, const Heads& heads,
                        const Tensor& dqkv) {
  if (qkv.rows() == 0) return;
  const AttentionOperands operands{documents, heads, qkv, out, log_sum_exp, &dout, &dqkv};
  if (qkv.dtype == DType::kBFloat16 &&
      cuda_stream(call.stream).state<AttentionPlans>().backward(call, operands))
    return;
  plain_attention_backward(call, dout, qkv, out, log_sum_exp, documents, heads, dqkv);
}

}  // namespace ripstop::cuda
