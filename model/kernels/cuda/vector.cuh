#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "model/device/dtype.h"
#include "model/kernels/cuda/launch.h"

namespace ripstop::cuda {

/// kWidth consecutive elements in registers, as float32.
template <int kWidth>
struct Floats {
  float at[kWidth];
};

/// The number of this thread in the grid.
__device__ inline int64_t grid_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/// Calls body(Width<kWidth>{}, i) if elements [i, i + kWidth) are all below `count`, else body(Width<1>{}, j)
/// for each of these elements j below `count`.
template <int kWidth, class Body>
__device__ inline void with_part(int64_t i, int64_t count, Body body) {
  if (i + kWidth <= count) {
    body(Width<kWidth>{}, i);
  } else {
    for (int64_t j = i; j < count; ++j) body(Width<1>{}, j);
  }
}

/// Loads kWidth (1, 2, 4 or 8) elements. `from` must be aligned to their total size, at most 16 bytes.
template <int kWidth>
__device__ inline Floats<kWidth> load(const float* from) {
  Floats<kWidth> x;
  if constexpr (kWidth % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      x.at[i] = v.x, x.at[i + 1] = v.y, x.at[i + 2] = v.z, x.at[i + 3] = v.w;
    }
  } else if constexpr (kWidth == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    x.at[0] = v.x, x.at[1] = v.y;
  } else {
    x.at[0] = *from;
  }
  return x;
}

template <int kWidth>
__device__ inline void store(float* to, const Floats<kWidth>& x) {
  if constexpr (kWidth % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4)
      *reinterpret_cast<float4*>(to + i) = make_float4(x.at[i], x.at[i + 1], x.at[i + 2], x.at[i + 3]);
  } else if constexpr (kWidth == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(x.at[0], x.at[1]);
  } else {
    *to = x.at[0];
  }
}

/// A bfloat16 is the upper half of a float32. A 32-bit word holds two: the first is in the lower half.
template <int kWidth>
__device__ inline Floats<kWidth> load(const BFloat16* from) {
  Floats<kWidth> x;
  if constexpr (kWidth == 1) {
    x.at[0] = __uint_as_float(static_cast<uint32_t>(from->bits) << 16);
  } else {
    uint32_t words[kWidth / 2];
    if constexpr (kWidth == 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else if constexpr (kWidth == 4) {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      words[0] = v.x, words[1] = v.y;
    } else {
      words[0] = *reinterpret_cast<const uint32_t*>(from);
    }
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      x.at[2 * i] = __uint_as_float(words[i] << 16);
      x.at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
    }
  }
  return x;
}

/// 16 bytes of elements in their stored dtype, in which bfloat16 takes half the registers of Floats.
struct Stored {
  uint4 bits;
};

/// `from` must be aligned to 16 bytes.
template <class T>
__device__ inline Stored load_stored(const T* from) {
  return {*reinterpret_cast<const uint4*>(from)};
}

/// The pointer, which is not read, gives the elements' type.
__device__ inline Floats<4> floats_of(const float*, const Stored& x) {
  return {{__uint_as_float(x.bits.x), __uint_as_float(x.bits.y), __uint_as_float(x.bits.z),
           __uint_as_float(x.bits.w)}};
}
__device__ inline Floats<8> floats_of(const BFloat16*, const Stored& x) {
  const uint32_t words[4] = {x.bits.x, x.bits.y, x.bits.z, x.bits.w};
  Floats<8> floats;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    floats.at[2 * i] = __uint_as_float(words[i] << 16);
    floats.at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
  }
  return floats;
}

/// Rounds two elements to bfloat16, in one word.
__device__ inline uint32_t rounded_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return static_cast<uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}

/// Rounds to nearest, ties to even.
template <int kWidth>
__device__ inline void store(BFloat16* to, const Floats<kWidth>& x) {
  if constexpr (kWidth == 1) {
    to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x.at[0]));
  } else {
    uint32_t words[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) words[i] = rounded_pair(x.at[2 * i], x.at[2 * i + 1]);
    if constexpr (kWidth == 8) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr (kWidth == 4) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint32_t*>(to) = words[0];
    }
  }
}

/// x as load() would return it after a store() of x to this type of memory. The pointer is not read.
template <int kWidth>
__device__ inline Floats<kWidth> as_stored(const float*, const Floats<kWidth>& x) {
  return x;
}
template <int kWidth>
__device__ inline Floats<kWidth> as_stored(const BFloat16*, Floats<kWidth> x) {
#pragma unroll
  for (int c = 0; c < kWidth; ++c)
    x.at[c] =
        __uint_as_float(static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(x.at[c]))) << 16);
  return x;
}

}  // namespace ripstop::cuda
