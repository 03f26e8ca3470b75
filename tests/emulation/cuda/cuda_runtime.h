// The part of CUDA's header of this name that the kernels use, for a C++ compiler. In the include path of the
// emulation it comes before CUDA's own. Device code becomes functions of one thread, which emulator.cpp runs.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "tests/emulation/emulator.h"

#define __global__
#define __device__
#define __launch_bounds__(...)
// One copy serves all threads of a block, since blocks run one after another. Thread-local, since the
// thread-local memory of a library is contiguous: the emulator can fill it with NaN before each block.
#define __shared__ static thread_local

inline const emulation::Index& threadIdx = emulation::now.thread;
inline const emulation::Index& blockIdx = emulation::now.block;
inline const emulation::Extent& blockDim = emulation::now.threads;
inline const emulation::Extent& gridDim = emulation::now.blocks;

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}

inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float rsqrtf(float x) {
  return 1.0F / sqrtf(x);
}

inline void __syncthreads(emulation::Place place = emulation::here()) {
  emulation::wait_for_block(place);
}
inline void __syncwarp(emulation::Place place = emulation::here()) {
  emulation::wait_for_warp(place);
}
/// The value of the lane whose number differs in the bits of `mask`. All 32 lanes must call it.
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask, emulation::Place place = emulation::here()) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulation::exchange(lanes, bits, mask, place);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

using cudaError_t = int;
using cudaStream_t = void*;
inline constexpr cudaError_t cudaSuccess = 0;
using dim3 = emulation::Extent;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return emulation::launch(config->stream, [blocks = config->gridDim, threads = config->blockDim, kernel,
                                            values = std::tuple<Parameters...>(arguments...)] {
    emulation::run(blocks, threads, [&] { std::apply(kernel, values); });
  });
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return emulation::launch(stream, [=] { std::memset(to, value, bytes); });
}
