// AdamW, with t the step and b1, b2 the decay rates of the moments m and v:
//   g = gradient * scale
//   p *= 1 - lr decay
//   m += (1 - b1) (g - m),  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
// Parallel over blocks of elements.
//
// gradient_scale turns the sums of the world (loss, targets, squared norm of the summed gradients) into
//   scale = {min(1, max_norm / (norm + 1e-6)) / targets, 1},  norm = sqrt(squared_norm) / targets
//   scale = {0, 0} if loss or norm is not finite, or if there is no target: adamw skips the update
// With max_norm = 0 nothing is clipped.
#include <cmath>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

// Elements of one task: 32 KiB of each array.
constexpr int64_t kBlock = 8192;

/// The constants of the inner loop: computed in float64, then rounded once.
struct Factors {
  float keep, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_root, epsilon;

  explicit Factors(const AdamWStep& s) {
    const auto step = static_cast<double>(s.step);
    keep = static_cast<float>(1 - s.learning_rate * s.weight_decay);
    one_minus_beta1 = static_cast<float>(1 - s.beta1);
    beta2 = static_cast<float>(s.beta2);
    one_minus_beta2 = static_cast<float>(1 - s.beta2);
    step_size = static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, step)));
    inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, step)));
    epsilon = static_cast<float>(s.epsilon);
  }
};

void update(const Factors& f, float scale, const float* gradient, float* master, float* first, float* second,
            int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    const float m = first[i] + f.one_minus_beta1 * (g - first[i]);
    const float v = f.beta2 * second[i] + f.one_minus_beta2 * (g * g);
    first[i] = m;
    second[i] = v;
    master[i] = master[i] * f.keep - f.step_size * m / (__builtin_sqrtf(v) * f.inverse_root + f.epsilon);
  }
}

}  // namespace

void gradient_scale(const KernelCall&, const Tensor& global, double max_norm, const Tensor& scale) {
  const double* sums = elements<double>(global);
  const double loss = sums[0], targets = sums[1], squared_norm = sums[2];
  float* to = elements<float>(scale);
  to[0] = to[1] = 0;
  if (!std::isfinite(loss) || !std::isfinite(squared_norm) || targets <= 0) return;
  const double norm = std::sqrt(squared_norm) / targets;
  const double clip = max_norm > 0 ? max_norm / (norm + 1e-6) : 1.0;
  to[0] = static_cast<float>((clip < 1.0 ? clip : 1.0) / targets);
  to[1] = 1;
}

void adamw(const KernelCall&, const AdamWStep& step, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy) {
  const Factors factors(step);
  // From gradient_scale: {factor, 1}, or {0, 0} to skip the update. The copy is written in both cases, so
  // that it always equals the weights.
  const float* factor_and_go = elements<float>(scale);
  const bool go = factor_and_go[1] != 0;
  float* weight = elements<float>(master);
  with_element(copy.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_blocks(master.count(), kBlock, 1, [&](int64_t at, int64_t count) {
      if (go)
        update(factors, factor_and_go[0], elements<float>(gradient) + at, weight + at,
               elements<float>(first) + at, elements<float>(second) + at, count);
      if (copy.data == nullptr) return;
      T* to = elements<T>(copy) + at;
      each_vector(count, [&](int64_t i, auto lanes) { store(to + i, load(weight + at + i, lanes), lanes); });
    });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
