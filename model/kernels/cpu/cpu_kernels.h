// The CPU kernels that are compiled once per instruction set. Each has the type of its entry in the
// KernelTable.
#pragma once
#include <type_traits>

#include "model/ops/kernel_table.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

#define RIPSTOP_CPU_KERNEL(kernel) std::remove_pointer_t<decltype(KernelTable::kernel)> kernel;
// add_rmsnorm.cpp
RIPSTOP_CPU_KERNEL(add_rmsnorm)
RIPSTOP_CPU_KERNEL(add_rmsnorm_backward)
// rope.cpp
RIPSTOP_CPU_KERNEL(rope)
// attention.cpp, attention_backward.cpp
RIPSTOP_CPU_KERNEL(attention)
RIPSTOP_CPU_KERNEL(attention_backward)
// cached_attention.cpp
RIPSTOP_CPU_KERNEL(store_key_value)
RIPSTOP_CPU_KERNEL(attention_cached)
// swiglu.cpp
RIPSTOP_CPU_KERNEL(swiglu)
RIPSTOP_CPU_KERNEL(swiglu_backward)
// embedding.cpp
RIPSTOP_CPU_KERNEL(embedding)
RIPSTOP_CPU_KERNEL(embedding_backward)
// head_loss.cpp
RIPSTOP_CPU_KERNEL(cross_entropy_statistics)
RIPSTOP_CPU_KERNEL(cross_entropy)
RIPSTOP_CPU_KERNEL(argmax_rows)
// elementwise.cpp
RIPSTOP_CPU_KERNEL(gather_rows)
RIPSTOP_CPU_KERNEL(scatter_rows)
RIPSTOP_CPU_KERNEL(add_sum)
RIPSTOP_CPU_KERNEL(add_squared_norm)
RIPSTOP_CPU_KERNEL(fill_zero)
RIPSTOP_CPU_KERNEL(convert)
RIPSTOP_CPU_KERNEL(add)
RIPSTOP_CPU_KERNEL(scale)
// dropout.cpp
RIPSTOP_CPU_KERNEL(dropout)
RIPSTOP_CPU_KERNEL(add_dropout)
// reduce_pieces.cpp
RIPSTOP_CPU_KERNEL(reduce_pieces)
// adamw.cpp
RIPSTOP_CPU_KERNEL(gradient_scale)
RIPSTOP_CPU_KERNEL(adamw)
#undef RIPSTOP_CPU_KERNEL

/// Their workspaces. None depends on the instruction set, so a plan made on another processor is valid.
#define RIPSTOP_CPU_WORKSPACE(kernel) std::remove_pointer_t<decltype(WorkspaceTable::kernel)> kernel##_bytes;
RIPSTOP_CPU_WORKSPACE(add_rmsnorm_backward)
RIPSTOP_CPU_WORKSPACE(attention)
RIPSTOP_CPU_WORKSPACE(attention_backward)
RIPSTOP_CPU_WORKSPACE(attention_cached)
RIPSTOP_CPU_WORKSPACE(add_sum)
RIPSTOP_CPU_WORKSPACE(add_squared_norm)
#undef RIPSTOP_CPU_WORKSPACE

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
