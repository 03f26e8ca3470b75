// Residual addition and RMSNorm. r is the inverse root mean square, C the number of columns.
//   forward    s = residual + branch,  r = 1 / sqrt(mean(s^2) + epsilon),  y = s r w
//   backward   ds = r (dy w) - s r^3 / C * sum(dy w s),  dw = sum over rows of dy s r
#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/norm_rows.h"
#include "model/kernels/cpu/row_sums.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

/// Writes s = residual + branch and returns the sum of s^2, where s is rounded as in memory, because
/// backward reads s from there.
template <class T>
float add_row(const T* residual, const T* branch, int64_t columns, T* sum) {
  Vector squares{};
  each_vector(columns, [&](int64_t i, auto lanes) {
    if (branch != nullptr) {
      store(sum + i, load(residual + i, lanes) + load(branch + i, lanes), lanes);
    } else if (sum != residual) {
      store(sum + i, load(residual + i, lanes), lanes);
    }
    const Vector s = load(sum + i, lanes);
    squares += s * s;
  });
  return sum_lanes(squares);
}

}  // namespace

int64_t add_rmsnorm_backward_bytes(int64_t rows, int64_t columns) {
  return row_sums_bytes(rows, columns);
}

void add_rmsnorm(const KernelCall&, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                 double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms) {
  const int64_t columns = residual.cols();
  float* inverse = elements<float>(inverse_rms);
  with_element(residual.dtype, [&](auto element) {
    using T = decltype(element);
    const T* branch_data = elements<T>(branch);
    parallel_rows(residual.rows(), columns, [&](int64_t n) {
      const int64_t at = n * columns;
      const float squares = add_row(elements<T>(residual) + at, branch_data ? branch_data + at : nullptr,
                                    columns, elements<T>(sum) + at);
      inverse[n] = inverse_rms_of(squares, columns, epsilon);
      norm_row(elements<T>(sum) + at, elements<T>(weight), inverse[n], columns, elements<T>(normed) + at);
    });
  });
}

void add_rmsnorm_backward(const KernelCall& call, const Tensor& dnormed, const Tensor& sum,
                          const Tensor& weight, const Tensor& inverse_rms, const Tensor& dresidual,
                          const Tensor& dweight, Accumulate accumulate) {
  const int64_t columns = sum.cols();
  const float* inverse = elements<float>(inverse_rms);
  with_element(sum.dtype, [&](auto element) {
    using T = decltype(element);
    sum_rows(call.workspace, sum.rows(), columns, columns, elements<float>(dweight),
             accumulate == Accumulate::kYes, [&](int64_t n, float* dw) {
               const int64_t at = n * columns;
               norm_row_backward<true>(elements<T>(dnormed) + at, elements<T>(sum) + at, elements<T>(weight),
                                       inverse[n], columns, elements<T>(dresidual) + at, dw);
             });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
