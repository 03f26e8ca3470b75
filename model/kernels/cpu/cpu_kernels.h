// The CPU kernels that are compiled once per instruction set. processor.cpp chooses one set at run time.
#pragma once
#include <type_traits>

#include "model/ops/kernel_table.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

#define RIPSTOP_CPU_KERNEL(kernel) std::remove_pointer_t<decltype(KernelTable::kernel)> kernel;
RIPSTOP_OTHER_KERNELS(RIPSTOP_CPU_KERNEL)
#undef RIPSTOP_CPU_KERNEL

/// Workspaces, equal for all instruction sets; those of products (linear.h) depend on the processor.
#define RIPSTOP_CPU_WORKSPACE(kernel) std::remove_pointer_t<decltype(WorkspaceTable::kernel)> kernel##_bytes;
RIPSTOP_CPU_WORKSPACE(add_bias_backward)
RIPSTOP_CPU_WORKSPACE(add_rmsnorm_backward)
RIPSTOP_CPU_WORKSPACE(norm_heads_backward)
RIPSTOP_CPU_WORKSPACE(attention)
RIPSTOP_CPU_WORKSPACE(attention_backward)
RIPSTOP_CPU_WORKSPACE(attention_cached)
RIPSTOP_CPU_WORKSPACE(add_sum)
#undef RIPSTOP_CPU_WORKSPACE

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
