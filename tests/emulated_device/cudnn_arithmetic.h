// The dtypes and pointwise functions of cuDNN's graphs, in float32.
#pragma once
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ripstop::emulated {

int64_t bytes_of(cudnnDataType_t type);
/// `value` as a tensor of this dtype holds it.
float rounded(float value, cudnnDataType_t type);
/// An element in memory; its dtype is float32, bfloat16 or int32.
float load(const std::byte* from, cudnnDataType_t type);
void store(std::byte* to, float value, cudnnDataType_t type);
template <class T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Whether the mode has two operands (BINARY_SELECT, with three, is neither), or one (GEN_INDEX is neither).
bool is_binary(cudnnPointwiseMode_t mode);
bool is_unary(cudnnPointwiseMode_t mode);
float binary(cudnnPointwiseMode_t mode, float a, float b);
float unary(cudnnPointwiseMode_t mode, float x);

}  // namespace ripstop::emulated
