// Forward: one block per row. Backward: one block per entry of token_order. The block of a token's first
// entry adds up all rows of the token in order; the blocks of its other entries do nothing. Each element has
// one thread, which adds without atomics and in a fixed order.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsAtOnce = 4;  ///< rows that a thread loads before it adds them

/// Row n of `to` = row (index[n] - first) of `from`, or zeros if `from` has no such row.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    gather(const Unit* from, int64_t held, const int32_t* index, int64_t first, int64_t units, Unit* to) {
  const int64_t row = index[blockIdx.x] - first;
  const bool here = row >= 0 && row < held;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x)
    to[blockIdx.x * units + i] = here ? from[row * units + i] : Unit{};
}

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    scatter(const Unit* from, const int32_t* index, int64_t units, Unit* to) {
  const int64_t row = index[blockIdx.x];
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x)
    to[row * units + i] = from[blockIdx.x * units + i];
}

/// Calls `body` with the largest unit in which rows of both tensors can be copied: 16, 4 or 2 bytes.
template <class Body>
void with_unit(const Tensor& a, const Tensor& b, Body body) {
  if (aligned(16, a.cols(), {&a, &b})) {
    body(uint4{});
  } else if (aligned(4, a.cols(), {&a, &b})) {
    body(uint32_t{});
  } else {
    body(uint16_t{});
  }
}

template <class T>
struct Gradient {
  const int32_t *token, *order;
  const T* dout;
  float* dtable;
  int64_t rows, columns, first_id, held;
};

/// Adds rows order[begin] .. order[end - 1] of dout, columns i .. i + kWidth - 1, to `sum`. Loads several
/// rows before it adds them, so that loads do not wait for the sum.
template <int kWidth, class T>
__device__ void add_rows(const Gradient<T>& x, int64_t begin, int64_t end, int64_t i, Floats<kWidth>& sum) {
  for (int64_t at = begin; at < end; at += kRowsAtOnce) {
    Floats<kWidth> row[kRowsAtOnce];
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j)
      if (at + j < end) row[j] = load<kWidth>(x.dout + x.order[at + j] * x.columns + i);
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j)
      if (at + j < end)
#pragma unroll
        for (int c = 0; c < kWidth; ++c) sum.at[c] += row[j].at[c];
  }
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) backward(Gradient<T> x) {
  const int64_t begin = blockIdx.x;
  const int32_t token = x.token[x.order[begin]];
  const int64_t row = token - x.first_id;
  if (row < 0 || row >= x.held) return;
  if (begin > 0 && x.token[x.order[begin - 1]] == token) return;
  // To avoid a barrier, each thread finds the end of the token's entries itself: steps double, then halve.
  int64_t end = begin + 1, step = 1;
  for (; end + step <= x.rows && x.token[x.order[end + step - 1]] == token; step *= 2) end += step;
  for (; step > 0; step /= 2)
    if (end + step <= x.rows && x.token[x.order[end + step - 1]] == token) end += step;
  for (int64_t i = threadIdx.x * kWidth; i < x.columns; i += blockDim.x * kWidth) {
    float* to = x.dtable + row * x.columns + i;
    Floats<kWidth> sum = load<kWidth>(to);
    add_rows(x, begin, end, i, sum);
    store(to, sum);
  }
}

}  // namespace

void embedding(const KernelCall& call, const Tensor& token, const Tensor& table, int64_t first_id,
               const Tensor& out) {
  with_unit(table, out, [&](auto unit) {
    using Unit = decltype(unit);
    const int64_t units = out.cols() * element_bytes(out.dtype) / static_cast<int64_t>(sizeof(Unit));
    launch(call, "embedding", gather<Unit>, {out.rows()}, row_threads(units, 4, kThreads),
           elements<Unit>(table), table.rows(), elements<int32_t>(token), first_id, units,
           elements<Unit>(out));
  });
}

void embedding_backward(const KernelCall& call, const Tensor& token, const Tensor& token_order,
                        const Tensor& dout, int64_t first_id, const Tensor& dtable, Accumulate accumulate) {
  if (accumulate == Accumulate::kNo) fill_zero(call, dtable);
  const int64_t columns = dout.cols();
  with_element(dout.dtype, [&](auto element) {
    using T = decltype(element);
    const Gradient<T> x{elements<int32_t>(token),
                        elements<int32_t>(token_order),
                        elements<T>(dout),
                        elements<float>(dtable),
                        dout.rows(),
                        columns,
                        first_id,
                        dtable.rows()};
    with_width<kWhole<T>>(aligned(16, columns, {&dout, &dtable}), [&](auto width) {
      launch(call, "embedding_backward", backward<width.value, T>, {dout.rows()},
             row_threads(columns / width.value, 2, kThreads), x);
    });
  });
}

void gather_rows(const KernelCall& call, const Tensor& x, const Tensor& index, const Tensor& out) {
  embedding(call, index, x, 0, out);
}

void scatter_rows(const KernelCall& call, const Tensor& x, const Tensor& index, const Tensor& out) {
  with_unit(x, out, [&](auto unit) {
    using Unit = decltype(unit);
    const int64_t units = out.cols() * element_bytes(out.dtype) / static_cast<int64_t>(sizeof(Unit));
    launch(call, "scatter_rows", scatter<Unit>, {x.rows()}, row_threads(units, 4, kThreads),
           elements<Unit>(x), elements<int32_t>(index), units, elements<Unit>(out));
  });
}

}  // namespace ripstop::cuda
