// SwiGLU of gate g and up u, with the sigmoid s = 1 / (1 + e^-g):
//   forward    out = g s u
//   backward   dg = dout u s (1 + g (1 - s)),  du = dout g s,  with dout the gradient of out
#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

// `exponential` takes at most 88.3. For x = -88 the sigmoid is already below the smallest normal float32.
[[gnu::always_inline]] inline Vector sigmoid(Vector x) {
  return 1.0F / (1.0F + exponential(smaller(broadcast(88.0F), -x)));
}

}  // namespace

void swiglu(const KernelCall&, const Tensor& gate_up, const Tensor& out) {
  const int64_t columns = out.cols();
  with_element(out.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(out.rows(), columns, [&](int64_t n) {
      const T* gate = elements<T>(gate_up) + 2 * n * columns;
      const T* up = gate + columns;
      T* to = elements<T>(out) + n * columns;
      each_vector(columns, [&](int64_t i, auto lanes) {
        const Vector g = load(gate + i, lanes);
        store(to + i, g * sigmoid(g) * load(up + i, lanes), lanes);
      });
    });
  });
}

void swiglu_backward(const KernelCall&, const Tensor& gate_up, const Tensor& dout) {
  const int64_t columns = dout.cols();
  with_element(dout.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(dout.rows(), columns, [&](int64_t n) {
      T* gate = elements<T>(gate_up) + 2 * n * columns;
      T* up = gate + columns;
      T* d = elements<T>(dout) + n * columns;
      each_vector(columns, [&](int64_t i, auto lanes) {
        const Vector g = load(gate + i, lanes), u = load(up + i, lanes), dy = load(d + i, lanes);
        const Vector s = sigmoid(g), silu = g * s;
        store(gate + i, dy * u * (s + silu * (1.0F - s)), lanes);
        store(up + i, dy * silu, lanes);
        store(d + i, silu * u, lanes);
      });
    });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
