// Attention without tensor cores. A warp works on one head of one row. For scores, each lane has its own key;
// for weighted sums over keys, its own elements of the head.
#pragma once
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {

inline constexpr int kAttentionWarps = 8;  ///< warps of a block

/// Copies a head, times `scale`, to shared memory. All lanes of a warp must call it, and then __syncwarp()
/// before another lane reads `to`.
template <class T>
__device__ inline void take_head(const T* from, int size, float scale, float* to) {
  for (int i = lane_number(); i < size; i += 32) to[i] = load<1>(from + i).at[0] * scale;
}

/// The dot product of a head in memory (`row`) and a head in shared memory (`with`), computed by one lane.
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

/// Offsets of rows that are `stride` elements apart.
struct StridedRows {
  int64_t stride;
  __device__ int64_t operator()(int64_t k) const { return k * stride; }
};

/// sum += weight[j] * row (first + j), for each j < count. Row k begins at rows + at(k). sum[e] of lane l is
/// for element l + 32 e of the head.
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

/// Numbers that the lanes of a warp exchange, in two sets used in turn: fast lanes write one set while slow
/// lanes still read the other, so one barrier per turn is enough.
struct Shown {
  float sets[2][32];
};

/// A running softmax over keys with weights e^(score - maximum), where `maximum` is the largest score so far.
/// `sum` adds up the weights, `out` the values times their weights.
template <int kPerLane>
struct Softmax {
  float out[kPerLane] = {};
  float maximum = -kInfinity, sum = 0;
};

/// Adds keys and values 0 .. count - 1 to the softmax. Key k begins at key + at(k), its value at value +
/// at(k). `query` (already scaled) and `shown` are in shared memory and belong to this warp.
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

struct AttentionSizes {
  const int32_t* offset;
  int64_t rows, documents, row;
  int heads, group, size;  ///< heads: query heads, of which `group` share each key-value head
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

/// Rows [begin, end) of a document. document_of() finds the document of `row` by binary search in `offset`.
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

/// Calls `body` with two widths: the elements per access, and the elements of a head that each lane holds in
/// registers (4 for heads of up to 128 elements, else 16).
template <class T, class Body>
void with_head(const Heads& heads, std::initializer_list<const Tensor*> tensors, Body body) {
  if (heads.size > kPlainHeadSize || heads.query >= 65536)  // the limit of Grid::y
    throw Error(ExitCode::kResources,
                fmt::format("{} attention heads of {} elements; the limits are 65535 and {}", heads.query,
                            heads.size, kPlainHeadSize),
                "set model.num_attention_heads, or model.head_dim, so that both fit");
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
