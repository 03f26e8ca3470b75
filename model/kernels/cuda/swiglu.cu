// SwiGLU of gate g and up u, with the sigmoid s = 1 / (1 + e^-g):
//   forward    out = g s u
//   backward   dg = dout u s (1 + g (1 - s)),  du = dout g s,  with dout the gradient of out
// One block per row.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 512;

__device__ inline float sigmoid(float x) {
  return __fdividef(1.0F, 1.0F + expf(-x));
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) forward(const T* gate_up, T* out, int64_t columns) {
  const T* gate = gate_up + 2 * columns * blockIdx.x;
  T* to = out + blockIdx.x * columns;
  for (int64_t i = threadIdx.x * kWidth; i < columns; i += blockDim.x * kWidth) {
    const Floats<kWidth> g = load<kWidth>(gate + i);
    Floats<kWidth> u = load<kWidth>(gate + columns + i);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) u.at[c] *= g.at[c] * sigmoid(g.at[c]);
    store(to + i, u);
  }
}

/// Overwrites gate, up and dout: each thread loads its elements of all three before it stores.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) backward(T* gate_up, T* dout, int64_t columns) {
  T* gate = gate_up + 2 * columns * blockIdx.x;
  T* to = dout + blockIdx.x * columns;
  for (int64_t i = threadIdx.x * kWidth; i < columns; i += blockDim.x * kWidth) {
    Floats<kWidth> g = load<kWidth>(gate + i), u = load<kWidth>(gate + columns + i), d = load<kWidth>(to + i);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float s = sigmoid(g.at[c]), silu = g.at[c] * s, dy = d.at[c];
      d.at[c] = silu * u.at[c];
      g.at[c] = dy * u.at[c] * (s + silu * (1.0F - s));
      u.at[c] = dy * silu;
    }
    store(gate + i, g);
    store(gate + columns + i, u);
    store(to + i, d);
  }
}

}  // namespace

void swiglu(const KernelCall& call, const Tensor& gate_up, const Tensor& out) {
  const int64_t columns = out.cols();
  with_element(out.dtype, [&](auto element) {
    using T = decltype(element);
    with_width<kWhole<T>>(aligned(16, columns, {&gate_up, &out}), [&](auto width) {
      launch(call, "swiglu", forward<width.value, T>, {out.rows()},
             row_threads(columns / width.value, 3, kThreads), elements<T>(gate_up), elements<T>(out),
             columns);
    });
  });
}

void swiglu_backward(const KernelCall& call, const Tensor& gate_up, const Tensor& dout) {
  const int64_t columns = dout.cols();
  with_element(dout.dtype, [&](auto element) {
    using T = decltype(element);
    with_width<kWhole<T>>(aligned(16, columns, {&gate_up, &dout}), [&](auto width) {
      launch(call, "swiglu_backward", backward<width.value, T>, {dout.rows()},
             row_threads(columns / width.value, 3, kThreads), elements<T>(gate_up), elements<T>(dout),
             columns);
    });
  });
}

}  // namespace ripstop::cuda
