// gradient_scale and AdamW, with t the step and b1, b2 the decay rates of the moments m and v:
//
//   g = gradient * scale
//   p *= 1 - lr decay
//   m += (1 - b1) (g - m),  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
//
// bfloat16 moments are rounded stochastically: see MomentBits in ops.h.
#include <cmath>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/philox_words.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

// Elements of one task: 32 KiB of each float32 array.
constexpr int64_t kBlock = 8192;

/// Pointers to one element of gradient, master and moments.
template <class Moment>
struct Range {
  const float* gradient;
  float* master;
  Moment *first, *second;

  Range at(int64_t i) const { return {gradient + i, master + i, first + i, second + i}; }
};

void update(const AdamWFactors& f, float scale, const Range<float>& x, int64_t count) {
  const float* gradient = x.gradient;
  float *master = x.master, *first = x.first, *second = x.second;
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

/// bfloat16's largest finite number.
constexpr float kLargest = 0x1.fep127F;

/// Rounds x (|x| <= kLargest) stochastically to bfloat16. The mean over all 16-bit values of `random` is x.
[[gnu::always_inline]] inline uint16_t rounded(float x, uint32_t random) {
  return static_cast<uint16_t>((__builtin_bit_cast(uint32_t, x) + random) >> 16);
}
[[gnu::always_inline]] inline float widened(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

/// words[i] holds the random bits of element i. The limits on m and v leave NaN as it is.
void update(const AdamWFactors& f, float scale, const Range<BFloat16>& x, const uint32_t* words,
            int64_t count) {
  const float* gradient = x.gradient;
  float* master = x.master;
  BFloat16 *first = x.first, *second = x.second;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale, m0 = widened(first[i].bits), v0 = widened(second[i].bits);
    float m = m0 + f.one_minus_beta1 * (g - m0);
    float v = f.beta2 * v0 + f.one_minus_beta2 * (g * g);
    m = m > kLargest ? kLargest : m < -kLargest ? -kLargest : m;
    v = v > kLargest ? kLargest : v;
    first[i].bits = rounded(m, words[i] & 0xffffU);
    second[i].bits = rounded(v, words[i] >> 16);
    master[i] = master[i] * f.keep - f.step_size * m / (__builtin_sqrtf(v) * f.inverse_root + f.epsilon);
  }
}

/// Updates `count` elements that are consecutive in the logical parameter, from element `logical` on.
void update_run(const AdamWFactors& f, const AdamWStep& step, float scale, const Range<BFloat16>& x,
                int64_t logical, int64_t count) {
  each_words(logical, count, static_cast<uint64_t>(step.step), step.bits.key,
             [&](int64_t at, int64_t n, const uint32_t* words) { update(f, scale, x.at(at), words, n); });
}

void update_rows(const AdamWFactors& f, const AdamWStep& step, float scale, const Range<BFloat16>& x,
                 int64_t at, int64_t count) {
  const MomentBits& bits = step.bits;
  if (bits.stride == bits.columns)
    return update_run(f, step, scale, x.at(at), bits.origin + bits.begin + at, count);
  for (int64_t end = at + count; at < end;) {
    const int64_t place = bits.begin + at, column = place % bits.stride;
    const int64_t left = bits.stride - column, n = end - at < left ? end - at : left;
    update_run(f, step, scale, x.at(at), bits.origin + place / bits.stride * bits.columns + column, n);
    at += n;
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
  const AdamWFactors factors(step);
  const float* factor_and_go = elements<float>(scale);
  const bool go = factor_and_go[1] != 0, rounds = first.dtype == DType::kBFloat16;
  float* weight = elements<float>(master);
  const auto range = [&](auto moment) {
    using Moment = decltype(moment);
    return Range<Moment>{elements<float>(gradient), weight, elements<Moment>(first),
                         elements<Moment>(second)};
  };
  with_element(copy.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_blocks(master.count(), kBlock, 1, [&](int64_t at, int64_t count) {
      if (go && rounds) update_rows(factors, step, factor_and_go[0], range(BFloat16{}), at, count);
      if (go && !rounds) update(factors, factor_and_go[0], range(float{}).at(at), count);
      if (copy.data == nullptr) return;
      // Writes the copy even if the update is skipped, because the copy must equal the weights.
      T* to = elements<T>(copy) + at;
      each_vector(count, [&](int64_t i, auto lanes) { store(to + i, load(weight + at + i, lanes), lanes); });
    });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
