// Residual addition and RMSNorm. r is the inverse root mean square, C the number of columns.
//   forward    s = residual + branch,  r = 1 / sqrt(mean(s^2) + epsilon),  y = s r w
//   backward   ds = r (dy w) - s r^3 / C * sum(dy w s),  dw = sum over rows of dy s r
#include <cmath>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

/// Each block of rows sums its own dw. The cut depends on N alone, so dw has the same bits for any number of
/// threads.
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinBlockRows = 16;

int64_t block_rows(int64_t rows) {
  const int64_t even = (rows + kMaxBlocks - 1) / kMaxBlocks;
  return even < kMinBlockRows ? kMinBlockRows : even;
}

/// Writes s = residual + branch and returns the sum of s^2. Both use s as rounded in memory, which backward
/// reads.
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

template <class T>
void norm_row(const T* sum, const T* weight, float inverse, int64_t columns, T* normed) {
  each_vector(columns, [&](int64_t i, auto lanes) {
    store(normed + i, load(sum + i, lanes) * inverse * load(weight + i, lanes), lanes);
  });
}

/// Adds the row's share of dw to `dweight`, and the gradient of s to `dresidual`.
template <class T>
void backward_row(const T* dnormed, const T* sum, const T* weight, float inverse, int64_t columns,
                  T* dresidual, float* dweight) {
  Vector dot{};
  each_vector(columns, [&](int64_t i, auto lanes) {
    const Vector dy = load(dnormed + i, lanes), s = load(sum + i, lanes);
    dot += dy * load(weight + i, lanes) * s;
    store(dweight + i, load(dweight + i, lanes) + dy * (s * inverse), lanes);
  });
  const float along = sum_lanes(dot) * inverse * inverse * inverse / static_cast<float>(columns);
  each_vector(columns, [&](int64_t i, auto lanes) {
    const Vector dy = load(dnormed + i, lanes), s = load(sum + i, lanes);
    const Vector ds = dy * load(weight + i, lanes) * inverse - s * along;
    store(dresidual + i, load(dresidual + i, lanes) + ds, lanes);
  });
}

}  // namespace

int64_t add_rmsnorm_backward_bytes(int64_t rows, int64_t columns) {
  if (rows == 0) return 0;
  const int64_t block = block_rows(rows);
  return 4 * columns * ((rows + block - 1) / block);
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
      // float64 costs nothing once per row.
      const double mean = static_cast<double>(squares) / static_cast<double>(columns);
      inverse[n] = static_cast<float>(1.0 / __builtin_sqrt(mean + epsilon));
      norm_row(elements<T>(sum) + at, elements<T>(weight), inverse[n], columns, elements<T>(normed) + at);
    });
  });
}

void add_rmsnorm_backward(const KernelCall& call, const Tensor& dnormed, const Tensor& sum,
                          const Tensor& weight, const Tensor& inverse_rms, const Tensor& dresidual,
                          const Tensor& dweight, Accumulate accumulate) {
  const int64_t rows = sum.rows(), columns = sum.cols(), block = block_rows(rows);
  const int64_t blocks = (rows + block - 1) / block;
  float* partial = static_cast<float*>(call.workspace);
  const float* inverse = elements<float>(inverse_rms);
  with_element(sum.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_blocks(rows, block, columns, [&](int64_t first, int64_t count) {
      float* dw = partial + first / block * columns;
      for (int64_t i = 0; i < columns; ++i) dw[i] = 0;
      for (int64_t n = first; n < first + count; ++n)
        backward_row(elements<T>(dnormed) + n * columns, elements<T>(sum) + n * columns, elements<T>(weight),
                     inverse[n], columns, elements<T>(dresidual) + n * columns, dw);
    });
  });
  float* dw = elements<float>(dweight);
  if (dw == nullptr) return;
  each_vector(columns, [&](int64_t i, auto lanes) {
    Vector total = accumulate == Accumulate::kYes ? load(dw + i, lanes) : Vector{};
    for (int64_t b = 0; b < blocks; ++b) total += load(partial + b * columns + i, lanes);
    store(dw + i, total, lanes);
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
