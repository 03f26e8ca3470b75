// AdamW, with t the step and b1, b2 the decay rates of the moments m and v:
//   g = gradient * scale
//   p *= 1 - lr decay
//   m += (1 - b1) (g - m),  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
// Each thread updates four neighbouring elements. Bound by memory: every array is read and written once.
#include <cmath>

#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 4;  ///< per thread: 16 bytes of float32 in one access

/// The constants of the kernel: computed on the host in float64, then rounded once.
struct Factors {
  float keep, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_root, epsilon;
};

Factors factors_of(const AdamWStep& s) {
  const auto step = static_cast<double>(s.step);
  return {static_cast<float>(1 - s.learning_rate * s.weight_decay),
          static_cast<float>(1 - s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1 - s.beta2),
          static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, step))),
          static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, step))),
          static_cast<float>(s.epsilon)};
}

template <class Copy>
struct Shard {
  const float *scale, *gradient;
  float *master, *first, *second;
  Copy* copy;  ///< or null
};

template <int kWidth, class Copy>
__device__ void update(const Shard<Copy>& x, const Factors& f, float scale, bool go, int64_t i) {
  Floats<kWidth> p = load<kWidth>(x.master + i);
  if (go) {
    const Floats<kWidth> gradient = load<kWidth>(x.gradient + i);
    Floats<kWidth> m = load<kWidth>(x.first + i), v = load<kWidth>(x.second + i);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float g = gradient.at[c] * scale;
      m.at[c] += f.one_minus_beta1 * (g - m.at[c]);
      v.at[c] = f.beta2 * v.at[c] + f.one_minus_beta2 * (g * g);
      p.at[c] = p.at[c] * f.keep - f.step_size * m.at[c] / (sqrtf(v.at[c]) * f.inverse_root + f.epsilon);
    }
    store(x.first + i, m);
    store(x.second + i, v);
    store(x.master + i, p);
  }
  if (x.copy != nullptr) store(x.copy + i, p);
}

/// Reads the scale on the device: the host does not wait to learn whether the step is skipped.
template <int kWidth, class Copy>
__global__ void __launch_bounds__(kThreads) step_shard(Shard<Copy> x, Factors factors, int64_t count) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
  const float scale = x.scale[0];
  const bool go = x.scale[1] != 0;
  if (i + kWidth <= count) {
    update<kWidth>(x, factors, scale, go, i);
  } else {
    for (int64_t j = i; j < count; ++j) update<1>(x, factors, scale, go, j);
  }
}

/// False for NaN, since every comparison with NaN is false.
__device__ bool finite(double x) {
  return fabs(x) < static_cast<double>(kInfinity);
}

/// One thread: the work is three numbers.
__global__ void find_scale(const double* global, double max_norm, float* scale) {
  if (threadIdx.x > 0) return;
  const double loss = global[0], targets = global[1], squared_norm = global[2];
  const bool go = finite(loss) && finite(squared_norm) && targets > 0;
  const double norm = sqrt(squared_norm) / targets;
  const double clip = max_norm > 0 ? max_norm / (norm + 1e-6) : 1.0;
  scale[0] = go ? static_cast<float>((clip < 1.0 ? clip : 1.0) / targets) : 0.0F;
  scale[1] = go ? 1.0F : 0.0F;
}

}  // namespace

void gradient_scale(const KernelCall& call, const Tensor& global, double max_norm, const Tensor& scale) {
  launch(call, "gradient_scale", find_scale, {}, 32, elements<double>(global), max_norm,
         elements<float>(scale));
}

void adamw(const KernelCall& call, const AdamWStep& step, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy) {
  const int64_t count = master.count();
  const bool whole = aligned(16, 16, {&gradient, &master, &first, &second, &copy});
  with_element(copy.dtype, [&](auto element) {
    using T = decltype(element);
    const Shard<T> shard{elements<float>(scale), elements<float>(gradient), elements<float>(master),
                         elements<float>(first), elements<float>(second),   elements<T>(copy)};
    with_width<kElements>(whole, [&](auto width) {
      launch(call, "adamw", step_shard<width.value, T>, {divide_up(count, int64_t{kThreads} * width.value)},
             kThreads, shard, factors_of(step), count);
    });
  });
}

}  // namespace ripstop::cuda
