// AdamW, with t the step and b1, b2 the decay rates of the moments m and v:
//
//   g = gradient * scale
//   p *= 1 - lr decay
//   m += (1 - b1) (g - m),  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
//
// Each thread updates four elements, whose random bits (MomentBits in ops.h) are one Philox block, or one
// element where blocks are not aligned.
#include <type_traits>

#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/philox.cuh"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 4;  ///< elements of a thread: 16 bytes of float32 in one access

template <class Moment, class Copy>
struct Shard {
  const float *scale, *gradient;
  float* master;
  Moment *first, *second;
  Copy* copy;  ///< null if no copy is written
  MomentBits bits;
  uint64_t step;
};

/// The index of the logical element that is element i of the operands (MomentBits).
__device__ inline int64_t logical_element(const MomentBits& bits, int64_t i) {
  const int64_t place = bits.begin + i;
  if (bits.stride == bits.columns) return bits.origin + place;
  return bits.origin + place / bits.stride * bits.columns + place % bits.stride;
}

/// bfloat16's largest finite number.
constexpr float kLargest = 0x1.fep127F;
__device__ inline float limited(float x) {
  return x > kLargest ? kLargest : x < -kLargest ? -kLargest : x;
}

/// Rounds moments with magnitudes of at most kLargest stochastically to bfloat16: adds the 16 bits in
/// random[c] to element c and truncates the lower 16 bits. float32 moments are stored as they are.
template <int kWidth>
__device__ inline void store_rounded(float* to, const Floats<kWidth>& x, const uint32_t*) {
  store(to, x);
}
template <int kWidth>
__device__ inline void store_rounded(BFloat16* to, const Floats<kWidth>& x, const uint32_t* random) {
  if constexpr (kWidth == 1) {
    to->bits = static_cast<uint16_t>((__float_as_uint(x.at[0]) + random[0]) >> 16);
  } else {
    static_assert(kWidth == 4);
    uint32_t sum[kWidth];
#pragma unroll
    for (int c = 0; c < kWidth; ++c) sum[c] = __float_as_uint(x.at[c]) + random[c];
    *reinterpret_cast<uint2*>(to) =
        make_uint2(sum[0] >> 16 | (sum[1] & 0xffff0000U), sum[2] >> 16 | (sum[3] & 0xffff0000U));
  }
}

/// Stores the moments of elements [i, i + kWidth). With kWidth 4, their random bits must be one Philox block.
template <int kWidth, class Moment, class Copy>
__device__ void store_moments(const Shard<Moment, Copy>& x, int64_t i, const Floats<kWidth>& m,
                              const Floats<kWidth>& v) {
  uint32_t of_first[kWidth] = {}, of_second[kWidth] = {};
  if constexpr (std::is_same_v<Moment, BFloat16>) {
    const auto element = static_cast<uint64_t>(logical_element(x.bits, i));
    const Words words = philox(element / 4, x.step, x.bits.key);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const uint32_t word = kWidth == 1 ? word_at(words, element % 4) : words.at[c];
      of_first[c] = word & 0xffffU;
      of_second[c] = word >> 16;
    }
  }
  store_rounded(x.first + i, m, of_first);
  store_rounded(x.second + i, v, of_second);
}

template <int kWidth, class Moment, class Copy>
__device__ void update(const Shard<Moment, Copy>& x, const AdamWFactors& f, float scale, bool go, int64_t i) {
  Floats<kWidth> p = load<kWidth>(x.master + i);
  if (go) {
    const Floats<kWidth> gradient = load<kWidth>(x.gradient + i);
    Floats<kWidth> m = load<kWidth>(x.first + i), v = load<kWidth>(x.second + i);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float g = gradient.at[c] * scale;
      m.at[c] += f.one_minus_beta1 * (g - m.at[c]);
      v.at[c] = f.beta2 * v.at[c] + f.one_minus_beta2 * (g * g);
      if constexpr (std::is_same_v<Moment, BFloat16>) m.at[c] = limited(m.at[c]), v.at[c] = limited(v.at[c]);
      p.at[c] = p.at[c] * f.keep - f.step_size * m.at[c] / (sqrtf(v.at[c]) * f.inverse_root + f.epsilon);
    }
    store_moments(x, i, m, v);
    store(x.master + i, p);
  }
  if (x.copy != nullptr) store(x.copy + i, p);
}

/// Reads the scale from device memory, so the host need not wait to find out whether the step is skipped.
template <int kWidth, class Moment, class Copy>
__global__ void __launch_bounds__(kThreads)
    step_shard(Shard<Moment, Copy> x, AdamWFactors factors, int64_t count) {
  const float scale = x.scale[0];
  const bool go = x.scale[1] != 0;
  with_part<kWidth>(grid_thread() * kWidth, count,
                    [&](auto width, int64_t i) { update<width.value>(x, factors, scale, go, i); });
}

/// Whether every four elements that begin at a multiple of four have their random bits in one Philox block.
bool are_blocks(const MomentBits& bits) {
  if (bits.stride == bits.columns) return (bits.origin + bits.begin) % 4 == 0;
  return bits.origin % 4 == 0 && bits.begin % 4 == 0 && bits.stride % 4 == 0 && bits.columns % 4 == 0;
}

__device__ bool finite(double x) {
  return fabs(x) < static_cast<double>(kInfinity);
}

/// Runs in one thread, because the work is three numbers.
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
  const bool rounds = first.dtype == DType::kBFloat16;
  const int64_t moments = kElements * element_bytes(first.dtype);
  const bool whole = aligned(16, 16, {&gradient, &master, &copy}) &&
                     aligned(moments, moments, {&first, &second}) && (!rounds || are_blocks(step.bits));
  const auto step_with = [&](auto moment, auto element) {
    using Moment = decltype(moment);
    using Copy = decltype(element);
    const Shard<Moment, Copy> shard{elements<float>(scale),
                                    elements<float>(gradient),
                                    elements<float>(master),
                                    elements<Moment>(first),
                                    elements<Moment>(second),
                                    elements<Copy>(copy),
                                    step.bits,
                                    static_cast<uint64_t>(step.step)};
    with_width<kElements>(whole, [&](auto width) {
      launch(call, "adamw", step_shard<width.value, Moment, Copy>,
             {divide_up(count, int64_t{kThreads} * width.value)}, kThreads, shard, AdamWFactors(step), count);
    });
  };
  with_element(copy.dtype, [&](auto element) {
    with_element(first.dtype, [&](auto moment) { step_with(moment, element); });
  });
}

}  // namespace ripstop::cuda
