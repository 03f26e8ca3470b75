// Residual addition and RMSNorm. r is the inverse root mean square, C the number of columns.
//
//   forward    s = residual + branch,  r = 1 / sqrt(mean(s^2) + epsilon),  y = s r w
//   backward   ds = r (dy w) - s r^3 / C * sum(dy w s),  dw = sum over rows of dy s r
//
// Forward: one block per row. Backward: block b takes rows b, b + blocks, ... and sums its own dw, and a
// second kernel adds the blocks' dw in a fixed order. Both have two variants: "held" reads a row once, into
// the block's registers; "looped", for long or unaligned rows, reads it twice, one element at a time.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/row_sums.cuh"
#include "model/kernels/cuda/vector.cuh"
#include "model/kernels/cuda_workspace_sizes.h"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kForwardHeld = 4;  ///< pieces of 16 bytes in memory, held in registers by a thread of forward
/// Each of these threads holds 16 bytes of each operand for the current row, and 16 for the next row.
constexpr int kBackwardThreads = 1024;

/// Returns the sum as stored, so that the mean is of the rounded numbers that backward reads.
template <int kWidth, class T>
__device__ Floats<kWidth> add_branch(const T* residual, const T* branch, T* sum, int64_t at) {
  Floats<kWidth> x = load<kWidth>(residual + at);
  if (branch != nullptr) {
    const Floats<kWidth> b = load<kWidth>(branch + at);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) x.at[c] += b.at[c];
    x = as_stored(sum, x);
  }
  if (branch != nullptr || sum != residual) store(sum + at, x);
  return x;
}

template <int kWidth>
__device__ float squares(const Floats<kWidth>& x) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) sum += x.at[c] * x.at[c];
  return sum;
}

/// normed = sum * inverse * weight.
template <int kWidth, class T>
__device__ void store_normed(const Floats<kWidth>& sum, float inverse, const T* weight, T* normed) {
  Floats<kWidth> y = load<kWidth>(weight);
#pragma unroll
  for (int c = 0; c < kWidth; ++c) y.at[c] *= sum.at[c] * inverse;
  store(normed, y);
}

template <class T>
struct Forward {
  const T *residual, *branch, *weight;
  T *sum, *normed;
  float* inverse_rms;
  int64_t columns;
  float epsilon;
};

/// The inverse root mean square of the block's row. `squares`: this thread's share of the sum of squares.
template <class T>
__device__ float finish_squares(const Forward<T>& x, float squares) {
  const float inverse = inverse_root(block_sum(squares) / static_cast<float>(x.columns), x.epsilon);
  if (threadIdx.x == 0) x.inverse_rms[blockIdx.x] = inverse;
  return inverse;
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_held(Forward<T> x) {
  constexpr int kWidth = kWhole<T>;
  const int64_t row = blockIdx.x * x.columns;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kWidth, first = threadIdx.x * kWidth;
  Floats<kWidth> sum[kForwardHeld];
  float own = 0;
#pragma unroll
  for (int j = 0; j < kForwardHeld; ++j) {
    const int64_t i = first + j * step;
    if (i >= x.columns) continue;
    sum[j] = add_branch<kWidth>(x.residual, x.branch, x.sum, row + i);
    own += squares(sum[j]);
  }
  const float inverse = finish_squares(x, own);
#pragma unroll
  for (int j = 0; j < kForwardHeld; ++j) {
    const int64_t i = first + j * step;
    if (i < x.columns) store_normed(sum[j], inverse, x.weight + i, x.normed + row + i);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_looped(Forward<T> x) {
  const int64_t row = blockIdx.x * x.columns;
  float own = 0;
  for (int64_t i = threadIdx.x; i < x.columns; i += blockDim.x)
    own += squares(add_branch<1>(x.residual, x.branch, x.sum, row + i));
  const float inverse = finish_squares(x, own);
  for (int64_t i = threadIdx.x; i < x.columns; i += blockDim.x)
    store_normed(load<1>(x.sum + row + i), inverse, x.weight + i, x.normed + row + i);
}

template <class T>
struct Backward {
  const T *dnormed, *sum, *weight;
  const float* inverse_rms;
  T* dresidual;
  float* dweight;  ///< [blocks, columns]
  int64_t rows, columns;
};

/// r^3 / C * sum(dy w s), the factor of s in ds. `dot`: this thread's share of the sum; `inverse`: r.
template <class T>
__device__ float finish_dot(const Backward<T>& x, float dot, float inverse) {
  return block_sum(dot) * inverse * inverse * inverse / static_cast<float>(x.columns);
}

/// The elements of a row that one thread holds.
struct HeldRow {
  Stored dnormed, sum, dresidual;
  float inverse;
};

template <class T>
__device__ HeldRow load_row(const Backward<T>& x, int64_t row, int64_t column) {
  const int64_t at = row * x.columns + column;
  return {load_stored(x.dnormed + at), load_stored(x.sum + at), load_stored(x.dresidual + at),
          x.inverse_rms[row]};
}

// Loads the next row while the current row is summed and written, so that memory does not idle. Both rows
// stay in their stored dtype until they are used, to take few registers.
template <class T>
__global__ void __launch_bounds__(kBackwardThreads) backward_held(Backward<T> x) {
  constexpr int kWidth = kWhole<T>;
  const int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
  const bool holds = column < x.columns;
  // Kept in registers over all rows of the block, and written to memory once.
  Floats<kWidth> dweight = {};
  HeldRow next{};
  if (holds) next = load_row(x, blockIdx.x, column);
  for (int64_t n = blockIdx.x; n < x.rows; n += gridDim.x) {
    const HeldRow row = next;
    if (holds && n + gridDim.x < x.rows) next = load_row(x, n + gridDim.x, column);
    float dot = 0;
    if (holds) {
      const Floats<kWidth> dnormed = floats_of(x.dnormed, row.dnormed), sum = floats_of(x.sum, row.sum),
                           weight = load<kWidth>(x.weight + column);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        dweight.at[c] += dnormed.at[c] * (sum.at[c] * row.inverse);
        dot += dnormed.at[c] * weight.at[c] * sum.at[c];
      }
    }
    const float along = finish_dot(x, dot, row.inverse);
    if (!holds) continue;
    const Floats<kWidth> dnormed = floats_of(x.dnormed, row.dnormed), sum = floats_of(x.sum, row.sum),
                         weight = load<kWidth>(x.weight + column);
    Floats<kWidth> dresidual = floats_of(x.dresidual, row.dresidual);
#pragma unroll
    for (int c = 0; c < kWidth; ++c)
      dresidual.at[c] += dnormed.at[c] * weight.at[c] * row.inverse - sum.at[c] * along;
    store(x.dresidual + n * x.columns + column, dresidual);
  }
  if (holds) store(x.dweight + blockIdx.x * x.columns + column, dweight);
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_looped(Backward<T> x) {
  float* dweight = x.dweight + blockIdx.x * x.columns;
  for (int64_t i = threadIdx.x; i < x.columns; i += blockDim.x) dweight[i] = 0;
  for (int64_t n = blockIdx.x; n < x.rows; n += gridDim.x) {
    const int64_t row = n * x.columns;
    const float inverse = x.inverse_rms[n];
    float dot = 0;
    for (int64_t i = threadIdx.x; i < x.columns; i += blockDim.x) {
      const float dy = load<1>(x.dnormed + row + i).at[0], s = load<1>(x.sum + row + i).at[0];
      dweight[i] += dy * (s * inverse);
      dot += dy * load<1>(x.weight + i).at[0] * s;
    }
    const float along = finish_dot(x, dot, inverse);
    for (int64_t i = threadIdx.x; i < x.columns; i += blockDim.x) {
      const float dy = load<1>(x.dnormed + row + i).at[0], s = load<1>(x.sum + row + i).at[0];
      Floats<1> d = load<1>(x.dresidual + row + i);
      d.at[0] += dy * load<1>(x.weight + i).at[0] * inverse - s * along;
      store(x.dresidual + row + i, d);
    }
  }
}

/// Whether `threads` threads can hold a row, if each holds `held` pieces of 16 bytes.
template <class T>
bool fits(int64_t columns, int64_t threads, int held) {
  return columns <= threads * held * kWhole<T>;
}

}  // namespace

void add_rmsnorm(const KernelCall& call, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                 double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms) {
  const int64_t rows = residual.rows(), columns = residual.cols();
  const bool whole = aligned(16, columns, {&residual, &branch, &weight, &sum, &normed});
  with_element(residual.dtype, [&](auto element) {
    using T = decltype(element);
    const Forward<T> x{elements<T>(residual),
                       elements<T>(branch),
                       elements<T>(weight),
                       elements<T>(sum),
                       elements<T>(normed),
                       elements<float>(inverse_rms),
                       columns,
                       static_cast<float>(epsilon)};
    if (whole && fits<T>(columns, kThreads, kForwardHeld)) {
      const int threads = row_threads(columns / kWhole<T>, kForwardHeld, kThreads);
      launch(call, "add_rmsnorm", forward_held<T>, {rows}, threads, x);
    } else {
      launch(call, "add_rmsnorm", forward_looped<T>, {rows}, row_threads(columns, 4, kThreads), x);
    }
  });
}

void add_rmsnorm_backward(const KernelCall& call, const Tensor& dnormed, const Tensor& sum,
                          const Tensor& weight, const Tensor& inverse_rms, const Tensor& dresidual,
                          const Tensor& dweight, Accumulate accumulate) {
  const int64_t rows = sum.rows(), columns = sum.cols();
  const int64_t blocks = rows < kNormBlocks ? rows : kNormBlocks;
  auto* partial = static_cast<float*>(call.workspace);
  const bool whole = aligned(16, columns, {&dnormed, &sum, &weight, &dresidual});
  with_element(sum.dtype, [&](auto element) {
    using T = decltype(element);
    const Backward<T> x{elements<T>(dnormed),
                        elements<T>(sum),
                        elements<T>(weight),
                        elements<float>(inverse_rms),
                        elements<T>(dresidual),
                        partial,
                        rows,
                        columns};
    if (whole && fits<T>(columns, kBackwardThreads, 1)) {
      const int threads = row_threads(columns / kWhole<T>, 1, kBackwardThreads);
      launch(call, "add_rmsnorm_backward", backward_held<T>, {blocks}, threads, x);
    } else {
      launch(call, "add_rmsnorm_backward", backward_looped<T>, {blocks}, row_threads(columns, 4, kThreads),
             x);
    }
  });
  if (dweight.empty()) return;
  // Runs on the kernel's stream, and so after all partial sums are written.
  sum_rows(call, "add_rmsnorm_backward", partial, blocks, columns, accumulate, elements<float>(dweight));
}

}  // namespace ripstop::cuda
