// Scratch of the CUDA kernels. Formulas only, so that a login node can plan for a GPU that it has not got.
#include "model/kernels/cuda_workspace.h"

#include <algorithm>

#include "model/ops/kernel_table.h"

namespace ripstop {
namespace {

// What cuBLASLt is given on Hopper; algorithms that want more are not chosen.
constexpr std::int64_t kGemmBytes = std::int64_t{32} << 20;

std::int64_t linear(const Tensor&, const Tensor&, const Tensor&) {
  return kGemmBytes;
}
std::int64_t linear_accumulating(const Tensor&, const Tensor&, const Tensor&, Accumulate) {
  return kGemmBytes;
}

// One row of float32 a block, added in order.
std::int64_t add_rmsnorm_backward(std::int64_t rows, std::int64_t columns) {
  return 4 * columns * std::min(rows, cuda::kNormBlocks);
}

// cuDNN's plan workspace at the largest bucket of documents.
constexpr std::int64_t kAttentionPlanBytes = 256 * 512 + 768;
std::int64_t attention(std::int64_t, const Heads&, DType) {
  return kAttentionPlanBytes;
}

// A float32 dQ and the row sums; with grouped heads also dK and dV per query head.
std::int64_t attention_backward(std::int64_t rows, const Heads& heads, DType dtype) {
  const std::int64_t query = rows * heads.query * heads.size;
  const std::int64_t grouped = heads.query == heads.key_value ? 0 : 2 * query * element_bytes(dtype);
  return 2 * kAttentionPlanBytes + 4 * query + 4 * rows * heads.query + grouped;
}

std::int64_t attention_cached(std::int64_t, std::int64_t, const Heads&) {
  return 0;
}
std::int64_t reduction(std::int64_t) {
  return 8 * cuda::kSumBlocks;
}

}  // namespace

const WorkspaceTable& cuda_workspaces() {
  static constexpr WorkspaceTable table{.linear = linear,
                                        .linear_backward_input = linear_accumulating,
                                        .linear_backward_weight = linear_accumulating,
                                        .add_rmsnorm_backward = add_rmsnorm_backward,
                                        .attention = attention,
                                        .attention_backward = attention_backward,
                                        .attention_cached = attention_cached,
                                        .add_sum = reduction,
                                        .add_squared_norm = reduction};
  return table;
}

}  // namespace ripstop
