// The checks of ops.cpp on operands. All throw Error(kBug), which names the operand by `what`.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop {

/// Shape [rows, columns]. Rows may be apart (Tensor::column_range).
void check_rows(const Tensor& t, int64_t rows, int64_t columns, const char* what);
/// Shape [rows, columns], contiguous.
void check_matrix(const Tensor& t, int64_t rows, int64_t columns, DType dtype, const char* what);
/// `count` elements of any shape, contiguous.
void check_count(const Tensor& t, int64_t count, DType dtype, const char* what);
void check_dtype(const Tensor& t, DType dtype, const char* what);

/// float32 or bfloat16, the types of weights and activations.
void check_operand(const Tensor& t, const char* what);
/// float32 or bfloat16, contiguous.
void check_activation(const Tensor& t, const char* what);
/// The activation dtype or float32: logits and sums over ranks are float32 beside bfloat16 operands.
void check_result(const Tensor& t, DType activation, const char* what);
/// `count` int32.
void check_index(const Tensor& t, int64_t count, const char* what);
/// `count` float32.
void check_float(const Tensor& t, int64_t count, const char* what);

/// K divides H, and D is even because the rotary embedding turns pairs.
void check_heads(const Heads& heads);
void check_documents(const Documents& documents);
/// The rows of a decode step, and the cache that takes their keys and values.
void check_cache(const Tensor& qkv, const Tensor& slot, const Tensor& position, const Heads& heads,
                 const Tensor& cache);
void check_dropout(const Tensor& x, const DropoutBits& bits, const Tensor& y);
void check_slice(const VocabularySlice& slice, int64_t columns);

}  // namespace ripstop
