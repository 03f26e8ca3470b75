// Cross-entropy over a vocabulary that may be cut into slices, with x the logits of a row and t its target:
//   m = max_j x_j,  sum = sum_j e^(x_j - m)
//   loss = m + log(sum) - x_t,  dx_j = e^(x_j - m) / sum - [j = t]
// One block per row. m and the sum take one pass over memory: each thread keeps a running maximum and
// rescales its sum whenever the maximum grows.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWide = 4;

/// Joins the values of a warp's 32 lanes; every lane gets the result. own.from_lane(step) returns the value
/// of the lane whose number differs in the bits of `step`.
template <class T, class Join>
__device__ T join_warp(T own, Join join) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) own = join(own, own.from_lane(step));
  return own;
}

/// Joins one value of each thread of the block, in a fixed order. Only the threads of warp 0 get the result.
/// A kernel may call this once: a second call would need a barrier before it writes to shared memory.
template <class T, class Join>
__device__ T join_block(T own, T none, Join join) {
  __shared__ T of_warp[32];
  own = join_warp(own, join);
  if (lane_number() == 0) of_warp[warp_number()] = own;
  __syncthreads();
  if (warp_number() > 0) return own;
  own = lane_number() < static_cast<int>(blockDim.x / 32) ? of_warp[lane_number()] : none;
  return join_warp(own, join);
}

/// The largest of some logits, and the sum of e^(logit - largest).
struct Statistics {
  float maximum, sum;

  __device__ Statistics from_lane(int step) const {
    return {__shfl_xor_sync(kAllLanes, maximum, step), __shfl_xor_sync(kAllLanes, sum, step)};
  }
};
__device__ constexpr Statistics of_nothing() {
  return {-kInfinity, 0};
}

/// e^(from - to), but 1 for two equal infinities, whose difference would be NaN.
__device__ float rescaled(float from, float to) {
  return from == to ? 1.0F : expf(from - to);
}
__device__ Statistics combine(const Statistics& a, const Statistics& b) {
  Statistics both;
  both.maximum = fmaxf(a.maximum, b.maximum);
  both.sum = a.sum * rescaled(a.maximum, both.maximum) + b.sum * rescaled(b.maximum, both.maximum);
  return both;
}

template <int kWidth>
__device__ void add_logits(const Floats<kWidth>& x, Statistics& s) {
  float most = s.maximum;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) most = fmaxf(most, x.at[c]);
  float sum = s.sum * rescaled(s.maximum, most);
#pragma unroll
  for (int c = 0; c < kWidth; ++c) sum += expf(x.at[c] - most);
  s.maximum = most, s.sum = sum;
}

/// Calls visit(index, elements) for this thread's share of a row: kWidth elements at a time, at the end of
/// the row one at a time.
template <int kWidth, class Visit>
__device__ void each_part(const float* row, int64_t count, Visit visit) {
  for (int64_t i = threadIdx.x * kWidth; i < count; i += blockDim.x * kWidth)
    with_part<kWidth>(i, count, [&](auto width, int64_t at) { visit(at, load<width.value>(row + at)); });
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    find_statistics(const float* logits, int64_t columns, const int32_t* target, VocabularySlice slice,
                    float* statistics) {
  const float* row = logits + blockIdx.x * columns;
  Statistics own = of_nothing();
  each_part<kWidth>(row, slice.valid, [&](int64_t, const auto& x) { add_logits(x, own); });
  own = join_block(own, of_nothing(), [](const Statistics& a, const Statistics& b) { return combine(a, b); });
  if (threadIdx.x > 0) return;
  const int64_t at = target[blockIdx.x] - slice.first;
  float* to = statistics + 3 * static_cast<int64_t>(blockIdx.x);
  to[0] = own.maximum;
  to[1] = own.sum;
  to[2] = at >= 0 && at < slice.valid ? row[at] : 0.0F;
}

template <class T>
struct Loss {
  const float* logits;
  const int32_t* target;
  const float* all;  ///< [slices, stride / 3, 3]: the statistics of every slice
  float* loss;
  T* dlogits;  ///< null if no gradient is written
  int64_t columns, slices, stride;
  VocabularySlice slice;
};

template <int kWidth, class T>
__device__ void store_gradient(const Loss<T>& x, const Statistics& whole, int64_t i, int64_t target,
                               Floats<kWidth> logits, T* to) {
  const float scale = 1.0F / whole.sum;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    const float p = expf(logits.at[c] - whole.maximum) * scale;
    logits.at[c] = i + c >= x.slice.valid ? 0.0F : i + c == target ? p - 1.0F : p;
  }
  store(to + i, logits);
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) find_loss(Loss<T> x) {
  const int64_t n = blockIdx.x;
  // Every thread combines the few slices itself, in the same order, so no barrier is needed.
  Statistics whole = of_nothing();
  float target_logit = 0;
  for (int64_t s = 0; s < x.slices; ++s) {
    const float* one = x.all + s * x.stride + 3 * n;
    whole = combine(whole, {one[0], one[1]});
    target_logit += one[2];
  }
  if (threadIdx.x == 0) x.loss[n] = whole.maximum + logf(whole.sum) - target_logit;
  if (x.dlogits == nullptr) return;
  const int64_t target = x.target[n] - x.slice.first;
  T* to = x.dlogits + n * x.columns;
  each_part<kWidth>(x.logits + n * x.columns, x.columns,
                    [&](int64_t i, const auto& logits) { store_gradient(x, whole, i, target, logits, to); });
}

struct Best {
  float value;
  int column;  ///< the lowest column that has `value`

  __device__ Best from_lane(int step) const {
    return {__shfl_xor_sync(kAllLanes, value, step), __shfl_xor_sync(kAllLanes, column, step)};
  }
};
constexpr int kNoColumn = 0x7fffffff;

/// Returns the larger value; of equal values, the value with the lower column. NaN is never larger.
__device__ Best better(const Best& a, const Best& b) {
  if (a.value == b.value) return a.column < b.column ? a : b;
  return b.value > a.value ? b : a;
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    find_best(const float* logits, int64_t columns, VocabularySlice slice, float* value, int32_t* id) {
  const float* row = logits + blockIdx.x * columns;
  constexpr Best kNone{-kInfinity, kNoColumn};
  Best own = kNone;
  each_part<kWidth>(row, slice.valid, [&](int64_t i, const auto& x) {
    constexpr int kCount = sizeof(x) / sizeof(float);
#pragma unroll
    for (int c = 0; c < kCount; ++c) own = better(own, {x.at[c], static_cast<int>(i) + c});
  });
  own = join_block(own, kNone, [](const Best& a, const Best& b) { return better(a, b); });
  if (threadIdx.x > 0) return;
  value[blockIdx.x] = own.value;
  id[blockIdx.x] = static_cast<int32_t>(slice.first + (own.column == kNoColumn ? 0 : own.column));
}

}  // namespace

void cross_entropy_statistics(const KernelCall& call, const Tensor& logits, const Tensor& target,
                              const VocabularySlice& slice, const Tensor& statistics) {
  const int64_t columns = logits.cols();
  with_width<kWide>(aligned(16, columns, {&logits}), [&](auto width) {
    launch(call, "cross_entropy_statistics", find_statistics<width.value>, {logits.rows()},
           row_threads(slice.valid, 4 * width.value, kThreads), elements<float>(logits), columns,
           elements<int32_t>(target), slice, elements<float>(statistics));
  });
}

void cross_entropy(const KernelCall& call, const Tensor& logits, const Tensor& target, const Tensor& all,
                   const VocabularySlice& slice, const Tensor& loss, const Tensor& dlogits) {
  const int64_t columns = logits.cols();
  with_element(dlogits.dtype, [&](auto element) {
    using T = decltype(element);
    const Loss<T> x{elements<float>(logits),
                    elements<int32_t>(target),
                    elements<float>(all),
                    elements<float>(loss),
                    elements<T>(dlogits),
                    columns,
                    all.shape[0],
                    3 * all.shape[1],
                    slice};
    const bool wide = aligned(16, columns, {&logits}) && aligned(kWide * sizeof(T), columns, {&dlogits});
    with_width<kWide>(wide, [&](auto width) {
      launch(call, "cross_entropy", find_loss<width.value, T>, {logits.rows()},
             row_threads(columns, 4 * width.value, kThreads), x);
    });
  });
}

void argmax_rows(const KernelCall& call, const Tensor& logits, const VocabularySlice& slice,
                 const Tensor& value, const Tensor& id) {
  const int64_t columns = logits.cols();
  with_width<kWide>(aligned(16, columns, {&logits}), [&](auto width) {
    launch(call, "argmax_rows", find_best<width.value>, {logits.rows()},
           row_threads(slice.valid, 4 * width.value, kThreads), elements<float>(logits), columns, slice,
           elements<float>(value), elements<int32_t>(id));
  });
}

}  // namespace ripstop::cuda
