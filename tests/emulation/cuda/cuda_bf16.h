// The part of CUDA's header of this name that the kernels use; see cuda_runtime.h.
#pragma once
#include <cstdint>

#include "model/device/dtype.h"

struct __nv_bfloat16 {
  ripstop::BFloat16 value;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {ripstop::BFloat16(x)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.value.bits;
}
