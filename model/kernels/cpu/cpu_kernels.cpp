#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/linear.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

using onednn::linear, onednn::linear_backward_input, onednn::linear_backward_weight;

#define RIPSTOP_ENTRY(kernel) .kernel = kernel,
extern const KernelTable kernel_table{RIPSTOP_PRODUCTS(RIPSTOP_ENTRY) RIPSTOP_OTHER_KERNELS(RIPSTOP_ENTRY)};
#undef RIPSTOP_ENTRY

extern const WorkspaceTable workspace_table{
    .linear = onednn::linear_bytes,
    .linear_backward_input = onednn::linear_backward_input_bytes,
    .linear_backward_weight = onednn::linear_backward_weight_bytes,
    .add_bias_backward = add_bias_backward_bytes,
    .add_rmsnorm_backward = add_rmsnorm_backward_bytes,
    .norm_heads_backward = norm_heads_backward_bytes,
    .attention = attention_bytes,
    .attention_backward = attention_backward_bytes,
    .attention_cached = attention_cached_bytes,
    .add_sum = add_sum_bytes,
};

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
