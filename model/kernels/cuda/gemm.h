#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "model/device/tensor.h"

namespace ripstop::cuda {

/// D [m, n] (+)= op(A) op(B), with op(A) [m, k] and op(B) [k, n], in the terms of cuBLASLt: all matrices are
/// column-major with the leading dimensions lda, ldb and ldd; a row-major matrix is the transpose of a
/// column-major one.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldd = 0;
  int64_t rows = 0;  ///< N of ops.h, which depends on the batch; equals n or k
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kFloat32, out = DType::kFloat32;
  /// The largest powers of two, up to 256, that divide the addresses of A, B and D in bytes.
  int64_t alignment_a = 256, alignment_b = 256, alignment_d = 256;

  auto operator<=>(const Gemm&) const = default;
};

/// y^T [O, N] = w x^T: A = w, B = x, D = y.
Gemm forward_gemm(const Tensor& x, const Tensor& w, const Tensor& y);
/// dx^T [I, N] = w^T dy^T: A = w, B = dy, D = dx.
Gemm backward_input_gemm(const Tensor& dy, const Tensor& w, const Tensor& dx);
/// dw^T [I, O] = x^T dy: A = x, B = dy, D = dw.
Gemm backward_weight_gemm(const Tensor& dy, const Tensor& x, const Tensor& dw);

/// Identifies the Gemm: "m4096-n2048-k11008-tn-bfloat16-float32-a256.256.16". If an operand is a view of
/// some columns, "-l6144.16.6144" (the leading dimensions) follows.
std::string gemm_name(const Gemm& gemm);

}  // namespace ripstop::cuda
