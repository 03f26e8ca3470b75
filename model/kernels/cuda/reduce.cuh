// Sums and maxima in a fixed order, with equal bits in every lane. All lanes of the warp (or all threads of
// the block) must call the function.
#pragma once
#include <cuda_runtime.h>

namespace ripstop::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr float kInfinity = __builtin_inff();

/// The number of this thread in its warp, 0 .. 31.
__device__ inline int lane_number() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ inline int warp_number() {
  return static_cast<int>(threadIdx.x / 32);
}

/// The sum over the warp, in every lane, after five exchanges between lanes.
template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

/// The maximum over the warp, in every lane. Ignores NaN.
__device__ inline float warp_maximum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

/// The sum over the block, in every thread.
template <class T>
__device__ inline T block_sum(T x) {
  __shared__ T of_warp[32];
  x = warp_sum(x);
  if (lane_number() == 0) of_warp[warp_number()] = x;
  __syncthreads();
  x = warp_sum(lane_number() < static_cast<int>(blockDim.x / 32) ? of_warp[lane_number()] : T(0));
  __syncthreads();  // the next call must not write to of_warp while other threads still read it
  return x;
}

/// r = 1 / sqrt(mean + epsilon), in float64 and rounded once, since r scales a whole row, and rsqrtf is off
/// by up to two units in the last place.
__device__ inline float inverse_root(float mean, float epsilon) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(mean) + static_cast<double>(epsilon)));
}

}  // namespace ripstop::cuda
