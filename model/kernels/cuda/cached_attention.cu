// Attention of single rows to cached keys and values. One block per row and query head. Each warp takes a
// range of positions and keeps a running softmax; at the end the block combines the softmaxes in order.
#include "model/kernels/cuda/plain_attention.cuh"

namespace ripstop::cuda {
namespace {

template <class Unit>
__global__ void __launch_bounds__(256)
    store_rows(const Unit* qkv, int64_t row, const int32_t* slot, const int32_t* position, int64_t positions,
               int64_t kept, Unit* cache) {
  const int64_t s = blockIdx.x;
  const Unit* from = qkv + (s + 1) * row - kept;
  Unit* to = cache + (slot[s] * positions + position[s]) * kept;
  for (int64_t i = threadIdx.x; i < kept; i += blockDim.x) to[i] = from[i];
}

template <class T>
struct Cached {
  const T *qkv, *cache;
  const int32_t *slot, *position;
  const int32_t *tail_first, *tail_place;  ///< CachedTail::first and CachedTail::place, or null
  T* out;
  int64_t row, positions, tail;  ///< `tail`: columns of CachedTail::place
  int heads, group, size;        ///< heads: query heads, of which `group` share each key-value head
  float scale;
};

/// Computes the offset in a slot, in elements, of the keys of position begin + k.
struct PlacedRows {
  int64_t begin, stride, first;
  const int32_t* place;
  __device__ int64_t operator()(int64_t k) const {
    const int64_t position = begin + k;
    return (position < first ? position : place[position - first]) * stride;
  }
};

template <int kWidth, int kPerLane, class T>
__global__ void __launch_bounds__(32 * kAttentionWarps, 1) attend_cached(Cached<T> x) {
  __shared__ float query[32 * kPerLane], outs[kAttentionWarps][32 * kPerLane];
  __shared__ Shown shown[kAttentionWarps];
  __shared__ float maxima[kAttentionWarps], sums[kAttentionWarps];
  const int64_t s = blockIdx.x, head = blockIdx.y;
  const int64_t kept = static_cast<int64_t>(x.heads / x.group) * x.size, stride = 2 * kept;
  if (warp_number() == 0) take_head(x.qkv + s * x.row + head * x.size, x.size, x.scale, query);
  __syncthreads();
  const int64_t count = x.position[s] + 1;
  // Each warp gets a multiple of 32 positions, so only the last warp with positions may have idle lanes.
  const int64_t share = (count + 32 * kAttentionWarps - 1) / (32 * kAttentionWarps) * 32;
  const int64_t first = warp_number() * share;
  const int64_t own = count - first < share ? count - first : share;
  const T* key = x.cache + x.slot[s] * x.positions * stride + head / x.group * x.size;
  const bool tailed = x.tail_place != nullptr;
  const PlacedRows at{first, stride, tailed ? x.tail_first[s] : count,
                      tailed ? x.tail_place + s * x.tail : nullptr};
  Softmax<kPerLane> part;
  attend<kWidth>(key, key + kept, at, own, x.size, query, shown[warp_number()], part);
  if (lane_number() == 0) {
    maxima[warp_number()] = part.maximum;
    sums[warp_number()] = part.sum;
  }
#pragma unroll
  for (int e = 0; e < kPerLane; ++e) outs[warp_number()][lane_number() + 32 * e] = part.out[e];
  __syncthreads();
  // A warp without positions has maximum -infinity and sum 0, and so adds nothing.
  float maximum = -kInfinity, sum = 0;
  for (const float m : maxima) maximum = fmaxf(maximum, m);
  for (int w = 0; w < kAttentionWarps; ++w) sum += sums[w] * expf(maxima[w] - maximum);
  for (int i = static_cast<int>(threadIdx.x); i < x.size; i += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int w = 0; w < kAttentionWarps; ++w) total += outs[w][i] * expf(maxima[w] - maximum);
    store(x.out + (s * x.heads + head) * x.size + i, Floats<1>{{total / sum}});
  }
}

}  // namespace

void store_key_value(const KernelCall& call, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                     const Heads& heads, const Tensor& cache) {
  const auto run = [&](auto unit) {
    using Unit = decltype(unit);
    const int64_t per_element = element_bytes(qkv.dtype), unit_bytes = sizeof(Unit);
    const int64_t kept = 2 * heads.key_value * heads.size * per_element / unit_bytes;
    launch(call, "store_key_value", store_rows<Unit>, {qkv.rows()}, row_threads(kept, 4, 256),
           elements<Unit>(qkv), heads.row() * per_element / unit_bytes, elements<int32_t>(slot),
           elements<int32_t>(position), cache.shape[1], kept, elements<Unit>(cache));
  };
  // Copies 16 bytes at a time if all rows are aligned to 16, else 4 bytes. Rows are multiples of 4 bytes,
  // because head sizes are even.
  if (aligned(16, heads.size, {&qkv, &cache})) {
    run(uint4{});
  } else {
    run(uint32_t{});
  }
}

void attention_cached(const KernelCall& call, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                      const Tensor& cache, const Heads& heads, const CachedTail& tail, const Tensor& out) {
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    const Cached<T> x{elements<T>(qkv),
                      elements<T>(cache),
                      elements<int32_t>(slot),
                      elements<int32_t>(position),
                      tail.empty() ? nullptr : elements<int32_t>(tail.first),
                      tail.empty() ? nullptr : elements<int32_t>(tail.place),
                      elements<T>(out),
                      heads.row(),
                      cache.shape[1],
                      tail.empty() ? 0 : tail.place.cols(),
                      static_cast<int>(heads.query),
                      static_cast<int>(heads.query / heads.key_value),
                      static_cast<int>(heads.size),
                      1.0F / sqrtf(static_cast<float>(heads.size))};
    with_head<T>(heads, {&cache}, [&](auto width, auto per_lane) {
      launch(call, "attention_cached", attend_cached<width.value, per_lane.value, T>,
             {qkv.rows(), heads.query}, 32 * kAttentionWarps, x);
    });
  });
}

}  // namespace ripstop::cuda
