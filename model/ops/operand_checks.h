// The checks of operands. All throw Error(kBug). `what` names the operand in the message.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop {

/// Checks rows and columns. `t` may be a view of some columns (Tensor::column_range).
void check_rows(const Tensor& t, int64_t rows, int64_t columns, const char* what);
/// Checks rows, columns and dtype, and that t is contiguous.
void check_matrix(const Tensor& t, int64_t rows, int64_t columns, DType dtype, const char* what);
/// Checks dtype, that t has `count` elements, and that t is contiguous.
void check_count(const Tensor& t, int64_t count, DType dtype, const char* what);
void check_dtype(const Tensor& t, DType dtype, const char* what);

/// Checks that t is float32 or bfloat16.
void check_operand(const Tensor& t, const char* what);
/// Checks that t is float32 or bfloat16, and contiguous.
void check_activation(const Tensor& t, const char* what);
/// Checks that t is of dtype `activation` or float32.
void check_result(const Tensor& t, DType activation, const char* what);
/// Checks that t has `count` int32 elements.
void check_index(const Tensor& t, int64_t count, const char* what);
/// Checks that t has `count` float32 elements.
void check_float(const Tensor& t, int64_t count, const char* what);

/// Checks that K divides H, and that D is even, because the rotary embedding rotates pairs.
void check_heads(const Heads& heads);
/// Checks that offset is int32 and has room for `count` + 1 elements.
void check_documents(const Documents& documents);
/// Checks heads, shapes and dtypes, but no slot or position.
void check_cache(const Tensor& qkv, const Tensor& slot, const Tensor& position, const Heads& heads,
                 const Tensor& cache);
/// Checks that x and y are contiguous, of one shape and one activation dtype, and that `bits` are valid.
void check_dropout(const Tensor& x, const DropoutBits& bits, const Tensor& y);
void check_slice(const VocabularySlice& slice, int64_t columns);

}  // namespace ripstop
