// This file has only formulas and calls no CUDA, so that a login node without a GPU can plan.
#include "model/kernels/cuda_workspace_sizes.h"

#include <algorithm>

#include "model/kernels/cuda_attention.h"
#include "model/ops/kernel_table.h"

namespace ripstop {
namespace {

using cuda::kGemmWorkspaceBytes;

int64_t linear(const Tensor&, const Tensor&, const Tensor&, Accumulate) {
  return kGemmWorkspaceBytes;
}

int64_t add_bias_backward(int64_t, int64_t) {
  return 0;
}

// One float32 row of dweight for each block of the kernel.
int64_t add_rmsnorm_backward(int64_t rows, int64_t columns) {
  return 4 * columns * std::min(rows, cuda::kNormBlocks);
}

// D float32 of dweight for each warp of the kernel.
int64_t norm_heads_backward(int64_t rows, const Heads& heads) {
  const int64_t normed = heads.query + heads.key_value;
  return 4 * heads.size * normed * cuda::norm_heads_groups(rows, normed);
}

int64_t attention(int64_t rows, const Heads& heads, DType dtype) {
  return dtype == DType::kBFloat16 ? cuda::attention_workspace(rows, heads).bytes : 0;
}
// Also enough for plain_attention_backward, the fallback where cuDNN refuses.
int64_t attention_backward(int64_t rows, int64_t longest, const Heads& heads, DType dtype,
                           bool deterministic) {
  return dtype == DType::kBFloat16
             ? cuda::attention_backward_workspace(rows, longest, heads, deterministic).bytes
             : 4 * rows * heads.query;
}

int64_t attention_cached(const Heads&) {
  return 0;
}
int64_t add_sum(int64_t) {
  return 8 * cuda::kSumBlocks;
}

}  // namespace

const WorkspaceTable& cuda_workspaces() {
  static constexpr WorkspaceTable table{.linear = linear,
                                        .linear_backward_input = linear,
                                        .linear_backward_weight = linear,
                                        .add_bias_backward = add_bias_backward,
                                        .add_rmsnorm_backward = add_rmsnorm_backward,
                                        .norm_heads_backward = norm_heads_backward,
                                        .attention = attention,
                                        .attention_backward = attention_backward,
                                        .attention_cached = attention_cached,
                                        .add_sum = add_sum};
  return table;
}

}  // namespace ripstop
