// The rows of the CPU back end that are compiled per instruction set, each with the type of its table row.
#pragma once
#include <type_traits>

#include "model/ops/kernel_table.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

#define RIPSTOP_CPU_ROW(row) std::remove_pointer_t<decltype(KernelTable::row)> row;
// add_rmsnorm.cpp
RIPSTOP_CPU_ROW(add_rmsnorm)
RIPSTOP_CPU_ROW(add_rmsnorm_backward)
// rope.cpp
RIPSTOP_CPU_ROW(rope)
// attention.cpp, attention_backward.cpp
RIPSTOP_CPU_ROW(attention)
RIPSTOP_CPU_ROW(attention_backward)
// cached_attention.cpp
RIPSTOP_CPU_ROW(store_key_value)
RIPSTOP_CPU_ROW(attention_cached)
// swiglu.cpp
RIPSTOP_CPU_ROW(swiglu)
RIPSTOP_CPU_ROW(swiglu_backward)
// embedding.cpp
RIPSTOP_CPU_ROW(embedding)
RIPSTOP_CPU_ROW(embedding_backward)
// head_loss.cpp
RIPSTOP_CPU_ROW(cross_entropy_statistics)
RIPSTOP_CPU_ROW(cross_entropy)
RIPSTOP_CPU_ROW(argmax_rows)
// elementwise.cpp
RIPSTOP_CPU_ROW(gather_rows)
RIPSTOP_CPU_ROW(scatter_rows)
RIPSTOP_CPU_ROW(add_sum)
RIPSTOP_CPU_ROW(add_squared_norm)
RIPSTOP_CPU_ROW(fill_zero)
RIPSTOP_CPU_ROW(convert)
RIPSTOP_CPU_ROW(add)
// reduce_pieces.cpp
RIPSTOP_CPU_ROW(reduce_pieces)
// adamw.cpp
RIPSTOP_CPU_ROW(gradient_scale)
RIPSTOP_CPU_ROW(adamw)
#undef RIPSTOP_CPU_ROW

/// Their scratch. None depends on the instruction set, so that a plan made on another processor holds.
#define RIPSTOP_CPU_WORKSPACE(row) std::remove_pointer_t<decltype(WorkspaceTable::row)> row##_bytes;
RIPSTOP_CPU_WORKSPACE(add_rmsnorm_backward)
RIPSTOP_CPU_WORKSPACE(attention)
RIPSTOP_CPU_WORKSPACE(attention_backward)
RIPSTOP_CPU_WORKSPACE(attention_cached)
RIPSTOP_CPU_WORKSPACE(add_sum)
RIPSTOP_CPU_WORKSPACE(add_squared_norm)
#undef RIPSTOP_CPU_WORKSPACE

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
