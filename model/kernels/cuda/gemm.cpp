#include "model/kernels/cuda/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace ripstop::cuda {
namespace {

// The largest power of two, up to 256, that divides the address of `t`. cuBLASLt uses wide loads only if it
// knows the alignment.
int64_t alignment(const Tensor& t) {
  const auto address = std::bit_cast<uintptr_t>(t.data);
  return int64_t{1} << std::min(std::countr_zero(address), 8);
}

Gemm aligned(Gemm gemm, const Tensor& a, const Tensor& b, const Tensor& d) {
  gemm.in = a.dtype;
  gemm.out = d.dtype;
  gemm.alignment_a = alignment(a);
  gemm.alignment_b = alignment(b);
  gemm.alignment_d = alignment(d);
  return gemm;
}

}  // namespace

Gemm forward_gemm(const Tensor& x, const Tensor& w, const Tensor& y) {
  return aligned({.m = w.rows(),
                  .n = x.rows(),
                  .k = x.cols(),
                  .lda = w.stride(),
                  .ldb = x.stride(),
                  .ldd = y.stride(),
                  .rows = x.rows(),
                  .transpose_a = true},
                 w, x, y);
}

Gemm backward_input_gemm(const Tensor& dy, const Tensor& w, const Tensor& dx) {
  return aligned({.m = w.cols(),
                  .n = dy.rows(),
                  .k = w.rows(),
                  .lda = w.stride(),
                  .ldb = dy.stride(),
                  .ldd = dx.stride(),
                  .rows = dy.rows()},
                 w, dy, dx);
}

Gemm backward_weight_gemm(const Tensor& dy, const Tensor& x, const Tensor& dw) {
  return aligned({.m = x.cols(),
                  .n = dy.cols(),
                  .k = x.rows(),
                  .lda = x.stride(),
                  .ldb = dy.stride(),
                  .ldd = dw.stride(),
                  .rows = x.rows(),
                  .transpose_b = true},
                 x, dy, dw);
}

std::string gemm_name(const Gemm& g) {
  const bool apart =
      g.lda > (g.transpose_a ? g.k : g.m) || g.ldb > (g.transpose_b ? g.n : g.k) || g.ldd > g.m;
  return fmt::format("m{}-n{}-k{}-{}{}-{}-{}-a{}.{}.{}{}", g.m, g.n, g.k, g.transpose_a ? 't' : 'n',
                     g.transpose_b ? 't' : 'n', to_string(g.in), to_string(g.out), g.alignment_a,
                     g.alignment_b, g.alignment_d,
                     apart ? fmt::format("-l{}.{}.{}", g.lda, g.ldb, g.ldd) : "");
}

}  // namespace ripstop::cuda
