// cuDNN computes bfloat16; the plain kernels compute float32 and whatever cuDNN refuses.
#include "model/device/cuda_device.h"
#include "model/kernels/cuda/attention_plans.h"
#include "model/kernels/cuda/cuda_kernels.h"

namespace ripstop::cuda {
namespace {

// The user is told, because the plain kernels are many times slower than tensor cores.
void note_plain(const KernelCall& call, const char* what, const Tensor& qkv, const Heads& heads,
                const std::string& why) {
  cuda_stream(call.stream)
      .note(fmt::format("{} of {} heads of {} in {} is computed without tensor cores", what, heads.query,
                        heads.size, to_string(qkv.dtype)),
            why);
}
constexpr const char* kFloat32 = "cuDNN computes attention only in bfloat16";

}  // namespace

void attention(const KernelCall& call, const Tensor& qkv, const Documents& documents, const Heads& heads,
               const Tensor& out, const Tensor& log_sum_exp) {
  if (qkv.rows() == 0) return;
  const AttentionOperands operands{documents, heads, qkv, out, log_sum_exp};
  std::optional<std::string> why = kFloat32;
  if (qkv.dtype == DType::kBFloat16)
    why = cuda_stream(call.stream).state<AttentionPlans>().forward(call, operands);
  if (!why) return;
  note_plain(call, "attention", qkv, heads, *why);
  plain_attention(call, qkv, documents, heads, out, log_sum_exp);
}

void attention_backward(const KernelCall& call, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Documents& documents, const Heads& heads,
                        const Tensor& dqkv) {
  if (qkv.rows() == 0) return;
  const AttentionOperands operands{documents, heads, qkv, out, log_sum_exp, &dout, &dqkv};
  std::optional<std::string> why = kFloat32;
  if (qkv.dtype == DType::kBFloat16)
    why = cuda_stream(call.stream).state<AttentionPlans>().backward(call, operands);
  if (!why) return;
  note_plain(call, "attention's gradient", qkv, heads, *why);
  plain_attention_backward(call, dout, qkv, out, log_sum_exp, documents, heads, dqkv);
}

int64_t prepare_attention(const Stream& stream, const AttentionSizes& sizes, Direction direction) {
  if (sizes.rows == 0 || sizes.dtype != DType::kBFloat16) return 0;
  return cuda_stream(stream).state<AttentionPlans>().prepare(stream, sizes, direction);
}

}  // namespace ripstop::cuda
