// The CUDA kernels. Each has the type of its entry in the KernelTable and the contract of the function of the
// same name in ops.h. Asynchronous: the work goes to the call's stream.
#pragma once
#include <type_traits>

#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

#define RIPSTOP_CUDA_KERNEL(kernel) std::remove_pointer_t<decltype(KernelTable::kernel)> kernel;
// linear.cpp: cuBLASLt
RIPSTOP_CUDA_KERNEL(linear)
RIPSTOP_CUDA_KERNEL(linear_backward_input)
RIPSTOP_CUDA_KERNEL(linear_backward_weight)
// add_rmsnorm.cu
RIPSTOP_CUDA_KERNEL(add_rmsnorm)
RIPSTOP_CUDA_KERNEL(add_rmsnorm_backward)
// rope.cu
RIPSTOP_CUDA_KERNEL(rope)
// attention.cpp: cuDNN
RIPSTOP_CUDA_KERNEL(attention)
RIPSTOP_CUDA_KERNEL(attention_backward)
RIPSTOP_CUDA_KERNEL(prepare_attention)
// cached_attention.cu
RIPSTOP_CUDA_KERNEL(store_key_value)
RIPSTOP_CUDA_KERNEL(attention_cached)
// swiglu.cu
RIPSTOP_CUDA_KERNEL(swiglu)
RIPSTOP_CUDA_KERNEL(swiglu_backward)
// embedding.cu
RIPSTOP_CUDA_KERNEL(embedding)
RIPSTOP_CUDA_KERNEL(embedding_backward)
RIPSTOP_CUDA_KERNEL(gather_rows)
RIPSTOP_CUDA_KERNEL(scatter_rows)
// head_loss.cu
RIPSTOP_CUDA_KERNEL(cross_entropy_statistics)
RIPSTOP_CUDA_KERNEL(cross_entropy)
RIPSTOP_CUDA_KERNEL(argmax_rows)
// elementwise.cu
RIPSTOP_CUDA_KERNEL(add_sum)
RIPSTOP_CUDA_KERNEL(add_squared_norm)
RIPSTOP_CUDA_KERNEL(fill_zero)
RIPSTOP_CUDA_KERNEL(convert)
RIPSTOP_CUDA_KERNEL(add)
RIPSTOP_CUDA_KERNEL(scale)
// dropout.cu
RIPSTOP_CUDA_KERNEL(dropout)
RIPSTOP_CUDA_KERNEL(add_dropout)
// reduce_pieces.cu
RIPSTOP_CUDA_KERNEL(reduce_pieces)
// adamw.cu
RIPSTOP_CUDA_KERNEL(gradient_scale)
RIPSTOP_CUDA_KERNEL(adamw)
#undef RIPSTOP_CUDA_KERNEL

/// Compute attention() and attention_backward() without tensor cores: for float32, wherever cuDNN refuses,
/// and as a reference in tests. They do not read `longest` of the documents. Forward needs no workspace,
/// backward plain_attention_backward_bytes. Deterministic. Throw Error(kResources) for head sizes above
/// kPlainHeadSize. Defined in plain_attention.cu and plain_attention_backward.cu.
std::remove_pointer_t<decltype(KernelTable::attention)> plain_attention;
std::remove_pointer_t<decltype(KernelTable::attention_backward)> plain_attention_backward;

/// The largest head size of the plain attention kernels.
inline constexpr int64_t kPlainHeadSize = 512;

/// The workspace of plain_attention_backward: one float32 per row and query head. At most as large as
/// cuda_workspaces().attention_backward.
constexpr int64_t plain_attention_backward_bytes(int64_t rows, const Heads& heads) {
  return 4 * rows * heads.query;
}

/// The table of ripstop's own kernels, with plain attention. linear, linear_backward_input and
/// linear_backward_weight are null.
constexpr KernelTable own_kernels() {
  return {
      .linear = nullptr,
      .linear_backward_input = nullptr,
      .linear_backward_weight = nullptr,
      .add_rmsnorm = add_rmsnorm,
      .add_rmsnorm_backward = add_rmsnorm_backward,
      .rope = rope,
      .attention = plain_attention,
      .attention_backward = plain_attention_backward,
      .prepare_attention = [](const Stream&, const AttentionSizes&, Direction) { return int64_t{0}; },
      .store_key_value = store_key_value,
      .attention_cached = attention_cached,
      .swiglu = swiglu,
      .swiglu_backward = swiglu_backward,
      .embedding = embedding,
      .embedding_backward = embedding_backward,
      .gather_rows = gather_rows,
      .scatter_rows = scatter_rows,
      .cross_entropy_statistics = cross_entropy_statistics,
      .cross_entropy = cross_entropy,
      .argmax_rows = argmax_rows,
      .add_sum = add_sum,
      .add_squared_norm = add_squared_norm,
      .fill_zero = fill_zero,
      .convert = convert,
      .add = add,
      .scale = scale,
      .dropout = dropout,
      .add_dropout = add_dropout,
      .reduce_pieces = reduce_pieces,
      .gradient_scale = gradient_scale,
      .adamw = adamw,
  };
}

}  // namespace ripstop::cuda
