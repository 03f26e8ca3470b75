// The CUDA kernels. Each has the type of its entry in the KernelTable and the contract of the function of the
// same name in ops.h. Asynchronous: the work goes to the call's stream.
#pragma once
#include <type_traits>

#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

#define RIPSTOP_CUDA_KERNEL(kernel) std::remove_pointer_t<decltype(KernelTable::kernel)> kernel;
RIPSTOP_PRODUCTS(RIPSTOP_CUDA_KERNEL)
RIPSTOP_OTHER_KERNELS(RIPSTOP_CUDA_KERNEL)
#undef RIPSTOP_CUDA_KERNEL

/// Compute attention() and attention_backward() without tensor cores: for float32, wherever cuDNN refuses,
/// and as a reference in tests. They do not read `longest` of the documents. Forward needs no workspace,
/// backward one float32 per row and query head. Deterministic. Throw Error(kResources) for head sizes above
/// kPlainHeadSize. Defined in plain_attention.cu and plain_attention_backward.cu.
std::remove_pointer_t<decltype(KernelTable::attention)> plain_attention;
std::remove_pointer_t<decltype(KernelTable::attention_backward)> plain_attention_backward;

/// The largest head size of the plain attention kernels and of norm_heads.
inline constexpr int64_t kPlainHeadSize = 512;

}  // namespace ripstop::cuda
