// y += bias in each row, one block per row; dbias = sum over rows of dy.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/row_sums.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 512;

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) add(const T* bias, T* y, int64_t columns) {
  T* row = y + blockIdx.x * columns;
  for (int64_t i = threadIdx.x * kWidth; i < columns; i += blockDim.x * kWidth) {
    Floats<kWidth> x = load<kWidth>(row + i);
    const Floats<kWidth> b = load<kWidth>(bias + i);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) x.at[c] += b.at[c];
    store(row + i, x);
  }
}

}  // namespace

void add_bias(const KernelCall& call, const Tensor& bias, const Tensor& y) {
  const int64_t columns = y.cols();
  with_element(y.dtype, [&](auto element) {
    using T = decltype(element);
    with_width<kWhole<T>>(aligned(16, columns, {&bias, &y}), [&](auto width) {
      launch(call, "add_bias", add<width.value, T>, {y.rows()},
             row_threads(columns / width.value, 3, kThreads), elements<T>(bias), elements<T>(y), columns);
    });
  });
}

void add_bias_backward(const KernelCall& call, const Tensor& dy, const Tensor& dbias, Accumulate accumulate) {
  with_element(dy.dtype, [&](auto element) {
    sum_rows(call, "add_bias_backward", elements<decltype(element)>(dy), dy.rows(), dy.cols(), accumulate,
             elements<float>(dbias));
  });
}

}  // namespace ripstop::cuda
