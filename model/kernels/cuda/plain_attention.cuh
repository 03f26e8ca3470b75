// Attention without tensor cores. A warp computes one query head of one row. For scores, each lane takes
// another key. For weighted sums over keys, each lane takes other elements of the head.
#pragma once
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {

inline constexpr int kAttentionWarps = 8;  ///< per block

/// Copies a head to shared memory, times `scale`. By one warp; needs __syncwarp before others read it.
template <class T>
__device__ inline void take_head(const T* from, int size, float scale, float* to) {
  for (int i = lane_number(); i < size; i += 32) to[i] = load<1>(from + i).at[0] * scale;
}

/// The dot product of a head in memory and one in shared memory, by one lane.
template <int kWidth, class T>
__device__ inline float dot(const T* row, const float* with, int size) {
  float sum = 0;
  for (int i = 0; i < size; i += kWidth) {
    const Floats<kWidth> x = load<kWidth>(row + i);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) sum += x.at[c] * with[i + c];
  }
  return sum;
}

/// Rows of a matrix, `stride` elements apart.
struct StridedRows {
  int64_t stride;
  __device__ int64_t operator()(int64_t k) const { return k * stride; }
};

/// sum += the sum of weight[j] * row first + j for j < count; row k begins at rows + at(k). Lane l has
/// elements l, l + 32, ... of the head.
template <int kPerLane, class T, class At>
__device__ inline void add_weighted(const T* rows, const At& at, int64_t first, int count,
                                    const float* weight, int size, float (&sum)[kPerLane]) {
  for (int j = 0; j < count; ++j) {
    const T* row = rows + at(first + j);
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      const int i = lane_number() + 32 * e;
      if (i < size) sum[e] += weight[j] * load<1>(row + i).at[0];
    }
  }
}

/// 32 numbers that the lanes of a warp exchange, in two sets that take turns: while slow lanes still read one
/// set, fast lanes write the other. So one barrier per turn is enough.
struct Shown {
  float sets[2][32];
};

/// A running softmax over keys: the weighted sum of values and the sum of weights so far, both relative to
/// the largest score so far: weights are e^(score - maximum).
template <int kPerLane>
struct Softmax {
  float out[kPerLane] = {};
  float maximum = -kInfinity, sum = 0;
};

/// Adds `count` keys and values to the softmax; those of position k begin at(k) elements behind `key` and
/// `value`. `query` (scaled) and `shown` are the warp's own, in shared memory.
template <int kWidth, int kPerLane, class T, class At>
__device__ inline void attend(const T* key, const T* value, const At& at, int64_t count, int size,
                              const float* query, Shown& shown, Softmax<kPerLane>& s) {
  for (int64_t first = 0; first < count; first += 32) {
    const int64_t k = first + lane_number();
    const float score = k < count ? dot<kWidth>(key + at(k), query, size) : -kInfinity;
    const float most = fmaxf(s.maximum, warp_maximum(score));
    const float keep = expf(s.maximum - most), own = expf(score - most);
    s.sum = s.sum * keep + warp_sum(own);
    s.maximum = most;
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) s.out[e] *= keep;
    float* weight = shown.sets[first / 32 % 2];
    weight[lane_number()] = own;
    __syncwarp();
    const int n = count - first < 32 ? static_cast<int>(count - first) : 32;
    add_weighted(value, at, first, n, weight, size, s.out);
  }
}

/// The parameters that forward and backward share.
struct AttentionSizes {
  const int32_t* offset;
  int64_t rows, documents, row;
  int heads, group, size;  ///< `group` query heads share a key-value head; there are heads / group
  float scale;
};
inline AttentionSizes sizes_of(const Tensor& qkv, const Documents& documents, const Heads& heads) {
  return {elements<int32_t>(documents.offset),
          qkv.rows(),
          documents.count,
          heads.row(),
          static_cast<int>(heads.query),
          static_cast<int>(heads.query / heads.key_value),
          static_cast<int>(heads.size),
          1.0F / sqrtf(static_cast<float>(heads.size))};
}

/// The document of `row`, as rows [begin, end), by binary search: offset [count + 1] ascends.
struct DocumentRows {
  int64_t begin, end;
};
__device__ inline DocumentRows document_of(const int32_t* offset, int64_t count, int64_t row) {
  int64_t low = 0, high = count;  // offset[low] <= row < offset[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (offset[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {offset[low], offset[high]};
}

/// Calls `body` with the number of elements per access and the number of elements of a head per lane. Four
/// variants: a lane holds 4 elements of heads up to 128, else 16, in registers.
template <class T, class Body>
void with_head(const Heads& heads, std::initializer_list<const Tensor*> tensors, Body body) {
  if (heads.size > kPlainHeadSize)
    throw Error(ExitCode::kResources,
                fmt::format("attention heads have {} elements; the limit is {}", heads.size, kPlainHeadSize),
                "set model.num_attention_heads so that hidden_size / num_attention_heads is smaller");
  const bool whole = aligned(16, heads.size, tensors), small = heads.size <= 128;
  if (whole && small) {
    body(Width<kWhole<T>>{}, Width<4>{});
  } else if (whole) {
    body(Width<kWhole<T>>{}, Width<16>{});
  } else if (small) {
    body(Width<2>{}, Width<4>{});
  } else {
    body(Width<2>{}, Width<16>{});
  }
}

}  // namespace ripstop::cuda
