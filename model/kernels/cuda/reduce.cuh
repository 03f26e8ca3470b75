// Sums and maxima over the lanes of a warp and the threads of a block. The order is fixed: the same bits
// every time and in every lane. All lanes of the warp (all threads of the block) must call.
#pragma once
#include <cuda_runtime.h>

namespace ripstop::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr float kInfinity = __builtin_inff();

__device__ inline int lane_number() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ inline int warp_number() {
  return static_cast<int>(threadIdx.x / 32);
}

/// The sum over the 32 lanes, in all of them: a butterfly of five exchanges.
template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

/// The largest value of the 32 lanes, in all of them. Ignores NaN.
__device__ inline float warp_maximum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

/// The sum over all threads of the block, in all of them.
template <class T>
__device__ inline T block_sum(T x) {
  __shared__ T of_warp[32];
  x = warp_sum(x);
  if (lane_number() == 0) of_warp[warp_number()] = x;
  __syncthreads();
  x = warp_sum(lane_number() < static_cast<int>(blockDim.x / 32) ? of_warp[lane_number()] : T(0));
  __syncthreads();  // before the next call writes to the same shared memory
  return x;
}

}  // namespace ripstop::cuda
