// RMSNorm of each head x [D] of the queries and keys, with the weight w of queries or of keys.
//   forward    r = 1 / sqrt(mean(x^2) + epsilon),  y = x r w
//   backward   dx = r (dy w) - x r^3 / D * sum(dy w x),  dw = sum over rows and heads of dy x r
#include <cstring>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/norm_rows.h"
#include "model/kernels/cpu/row_sums.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

template <class T>
float inverse_of_head(const T* head, int64_t size, double epsilon) {
  Vector squares{};
  each_vector(size, [&](int64_t i, auto lanes) {
    const Vector x = load(head + i, lanes);
    squares += x * x;
  });
  return inverse_rms_of(sum_lanes(squares), size, epsilon);
}

/// Calls body(place in the row, place in w [2D]) for each head that has a norm.
template <class Body>
void each_normed_head(const Heads& heads, Body body) {
  for (int64_t h = 0; h < heads.query + heads.key_value; ++h)
    body(h * heads.size, h < heads.query ? 0 : heads.size);
}

}  // namespace

void norm_heads(const KernelCall&, const Tensor& qkv, const Tensor& weight, double epsilon,
                const Heads& heads, const Tensor& out) {
  const int64_t row = heads.row(), size = heads.size, values = heads.key_value * size;
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(qkv.rows(), row, [&](int64_t n) {
      const T* from = elements<T>(qkv) + n * row;
      T* to = elements<T>(out) + n * row;
      each_normed_head(heads, [&](int64_t at, int64_t at_weight) {
        norm_row(from + at, elements<T>(weight) + at_weight, inverse_of_head(from + at, size, epsilon), size,
                 to + at);
      });
      std::memcpy(static_cast<void*>(to + row - values), from + row - values,
                  static_cast<size_t>(values) * sizeof(T));
    });
  });
}

int64_t norm_heads_backward_bytes(int64_t rows, const Heads& heads) {
  return row_sums_bytes(rows, 2 * heads.size);
}

void norm_heads_backward(const KernelCall& call, const Tensor& qkv, const Tensor& weight, double epsilon,
                         const Heads& heads, const Tensor& dqkv, const Tensor& dweight,
                         Accumulate accumulate) {
  const int64_t row = heads.row(), size = heads.size;
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    sum_rows(call.workspace, qkv.rows(), 2 * size, row, elements<float>(dweight),
             accumulate == Accumulate::kYes, [&](int64_t n, float* dw) {
               each_normed_head(heads, [&](int64_t at, int64_t at_weight) {
                 const T* head = elements<T>(qkv) + n * row + at;
                 T* dhead = elements<T>(dqkv) + n * row + at;
                 norm_row_backward<false>(dhead, head, elements<T>(weight) + at_weight,
                                          inverse_of_head(head, size, epsilon), size, dhead, dw + at_weight);
               });
             });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
