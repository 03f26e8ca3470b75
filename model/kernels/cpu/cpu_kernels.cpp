// Index of the CPU back end: the kernel of every operation. Compiled once per instruction set; processor.cpp
// chooses one of the tables at start.
#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/linear.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

extern const KernelTable kernel_table{
    .linear = onednn::linear,
    .linear_backward_input = onednn::linear_backward_input,
    .linear_backward_weight = onednn::linear_backward_weight,
    .add_rmsnorm = add_rmsnorm,
    .add_rmsnorm_backward = add_rmsnorm_backward,
    .rope = rope,
    .attention = attention,
    .attention_backward = attention_backward,
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

extern const WorkspaceTable workspace_table{
    .linear = onednn::linear_bytes,
    .linear_backward_input = onednn::linear_backward_input_bytes,
    .linear_backward_weight = onednn::linear_backward_weight_bytes,
    .add_rmsnorm_backward = add_rmsnorm_backward_bytes,
    .attention = attention_bytes,
    .attention_backward = attention_backward_bytes,
    .attention_cached = attention_cached_bytes,
    .add_sum = add_sum_bytes,
    .add_squared_norm = add_squared_norm_bytes,
};

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
