// A float32 sum takes two kernels: in the first, each block writes a float64 partial sum; in the second, one
// block adds these up. The order depends only on the number and the alignment of the elements.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/vector.cuh"
#include "model/kernels/cuda_workspace_sizes.h"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;
/// elements of a block; more if kSumBlocks blocks would not be enough
constexpr int64_t kElementsOfSumBlock = 4096;

struct Value {
  __device__ double operator()(float x) const { return static_cast<double>(x); }
};
struct Square {
  __device__ double operator()(float x) const { return static_cast<double>(x) * static_cast<double>(x); }
};

/// partial[block] = the sum of term(x[i]) over the block's elements.
template <int kWidth, class Term>
__global__ void __launch_bounds__(kThreads)
    partial_sums(const float* x, int64_t count, double* partial, Term term) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * kWidth;
  double sum = 0;
  for (int64_t i = grid_thread() * kWidth; i < count; i += step)
    with_part<kWidth>(i, count, [&](auto width, int64_t at) {
      const Floats<width.value> values = load<width.value>(x + at);
#pragma unroll
      for (int c = 0; c < width.value; ++c) sum += term(values.at[c]);
    });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// total += the sum of `count` float64 numbers, such as partial sums. Runs in one block.
__global__ void __launch_bounds__(kThreads)
    add_partial_sums(const double* partial, int64_t count, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total += sum;
}

template <class Term>
void add_terms(const KernelCall& call, const char* name, const Tensor& x, const Tensor& total, Term term) {
  const int64_t count = x.count(), wanted = divide_up(count, kElementsOfSumBlock);
  const int64_t blocks = wanted < kSumBlocks ? wanted : kSumBlocks;
  auto* partial = static_cast<double*>(call.workspace);
  with_width<4>(aligned(16, 4, {&x}), [&](auto width) {
    launch(call, name, partial_sums<width.value, Term>, {blocks}, kThreads, elements<float>(x), count,
           partial, term);
  });
  // Without elements there are no partial sums.
  if (blocks > 0)
    launch(call, name, add_partial_sums, {}, kThreads, partial, blocks, elements<double>(total));
}

template <int kWidth, class From, class To>
__global__ void __launch_bounds__(kThreads) convert_elements(const From* from, To* to, int64_t count) {
  with_part<kWidth>(grid_thread() * kWidth, count,
                    [&](auto width, int64_t at) { store(to + at, load<width.value>(from + at)); });
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) add_elements(const float* x, float* y, int64_t count) {
  with_part<kWidth>(grid_thread() * kWidth, count, [&](auto width, int64_t at) {
    const Floats<width.value> a = load<width.value>(x + at);
    Floats<width.value> b = load<width.value>(y + at);
#pragma unroll
    for (int c = 0; c < width.value; ++c) b.at[c] += a.at[c];
    store(y + at, b);
  });
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) scale_elements(float factor, T* x, int64_t count) {
  with_part<kWidth>(grid_thread() * kWidth, count, [&](auto width, int64_t at) {
    Floats<width.value> values = load<width.value>(x + at);
#pragma unroll
    for (int c = 0; c < width.value; ++c) values.at[c] *= factor;
    store(x + at, values);
  });
}

int64_t blocks_of(int64_t count, int width) {
  return divide_up(count, int64_t{kThreads} * width);
}

}  // namespace

void add_sum(const KernelCall& call, const Tensor& x, const Tensor& total) {
  if (x.dtype == DType::kFloat64) {
    launch(call, "add_sum", add_partial_sums, {}, kThreads, elements<double>(x), x.count(),
           elements<double>(total));
    return;
  }
  add_terms(call, "add_sum", x, total, Value{});
}

void add_squared_norm(const KernelCall& call, const Tensor& x, const Tensor& total) {
  add_terms(call, "add_squared_norm", x, total, Square{});
}

void fill_zero(const KernelCall& call, const Tensor& x) {
  if (x.count() > 0)
    check(cudaMemsetAsync(x.data, 0, static_cast<size_t>(x.bytes()), native_stream(call)), "fill_zero");
}

void convert(const KernelCall& call, const Tensor& x, const Tensor& y) {
  const int64_t count = x.count();
  with_element(x.dtype, [&](auto from) {
    with_element(y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      with_width<8>(aligned(16, 8, {&x, &y}), [&](auto width) {
        launch(call, "convert", convert_elements<width.value, From, To>, {blocks_of(count, width.value)},
               kThreads, elements<From>(x), elements<To>(y), count);
      });
    });
  });
}

void add(const KernelCall& call, const Tensor& x, const Tensor& y) {
  const int64_t count = x.count();
  with_width<4>(aligned(16, 4, {&x, &y}), [&](auto width) {
    launch(call, "add", add_elements<width.value>, {blocks_of(count, width.value)}, kThreads,
           elements<float>(x), elements<float>(y), count);
  });
}

void scale(const KernelCall& call, double factor, const Tensor& x) {
  const int64_t count = x.count();
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    with_width<8>(aligned(16, 8, {&x}), [&](auto width) {
      launch(call, "scale", scale_elements<width.value, T>, {blocks_of(count, width.value)}, kThreads,
             static_cast<float>(factor), elements<T>(x), count);
    });
  });
}

}  // namespace ripstop::cuda
