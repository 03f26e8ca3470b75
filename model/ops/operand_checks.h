// Checks that every operation of ops.h makes on its operands, on each device. All throw Error(kBug), which
// names the operand by `what`.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop {

/// Shape [rows, columns]. The rows need not be contiguous: those of an operand of a product are not.
void check_rows(const Tensor& t, int64_t rows, int64_t columns, const char* what);
void check_contiguous(const Tensor& t, const char* what);
/// Shape [rows, columns], contiguous.
void check_matrix(const Tensor& t, int64_t rows, int64_t columns, const char* what);
/// So many elements of any shape, contiguous.
void check_count(const Tensor& t, int64_t count, const char* what);
void check_dtype(const Tensor& t, DType dtype, const char* what);

/// Weights and activations of a product: float32 or bfloat16.
void check_operand(const Tensor& t, const char* what);
/// Checks of every other operand: the kernels are compiled for these two types and contiguous rows.
void check_activation(const Tensor& t, const char* what);
/// `count` int32.
void check_index(const Tensor& t, int64_t count, const char* what);
/// `count` float32.
void check_float(const Tensor& t, int64_t count, const char* what);
/// A result may be float32 with bfloat16 operands: logits, and sums over ranks.
void check_result(const Tensor& t, DType activation, const char* what);

/// The size is even because the rotary embedding turns pairs.
void check_heads(const Heads& heads);
void check_documents(const Documents& documents);
/// The rows of a step of generation and the cache that they go to.
void check_cache(const Tensor& qkv, const Tensor& slot, const Tensor& position, const Heads& heads,
                 const Tensor& cache);
void check_dropout(const Tensor& x, const DropoutBits& bits, const Tensor& y);
/// Columns beyond `valid` are padding of the last slice: they must never win or count.
void check_slice(const VocabularySlice& slice, int64_t columns);

}  // namespace ripstop
