#include "tests/emulated_device/cudnn_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "model/device/dtype.h"

namespace ripstop::emulated {

int64_t bytes_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_INT64:
      return 8;
    case CUDNN_DATA_BOOLEAN:
      return 1;
    default:
      return 4;
  }
}

float rounded(float value, cudnnDataType_t type) {
  return type == CUDNN_DATA_BFLOAT16 ? static_cast<float>(BFloat16(value)) : value;
}

float load(const std::byte* from, cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return static_cast<float>(read<BFloat16>(from));
    case CUDNN_DATA_INT32:
      return static_cast<float>(read<int32_t>(from));
    default:
      return read<float>(from);
  }
}

void store(std::byte* to, float value, cudnnDataType_t type) {
  if (type == CUDNN_DATA_BFLOAT16) {
    const BFloat16 b(value);
    std::memcpy(to, &b, sizeof b);
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}

float binary(cudnnPointwiseMode_t mode, float a, float b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return a + b;
    case CUDNN_POINTWISE_SUB:
      return a - b;
    case CUDNN_POINTWISE_MUL:
      return a * b;
    case CUDNN_POINTWISE_DIV:
      return a / b;
    case CUDNN_POINTWISE_MAX:
      return std::fmax(a, b);
    case CUDNN_POINTWISE_MIN:
      return std::fmin(a, b);
    case CUDNN_POINTWISE_CMP_EQ:
      return a == b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_NEQ:
      return a != b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_GT:
      return a > b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_GE:
      return a >= b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_LT:
      return a < b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_LE:
      return a <= b ? 1 : 0;
    case CUDNN_POINTWISE_LOGICAL_AND:
      return a != 0 && b != 0 ? 1 : 0;
    default:  // CUDNN_POINTWISE_LOGICAL_OR
      return a != 0 || b != 0 ? 1 : 0;
  }
}

float unary(cudnnPointwiseMode_t mode, float x) {
  switch (mode) {
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_NEG:
      return -x;
    case CUDNN_POINTWISE_LOGICAL_NOT:
      return x == 0 ? 1 : 0;
    default:  // CUDNN_POINTWISE_IDENTITY
      return x;
  }
}

bool is_binary(cudnnPointwiseMode_t mode) {
  constexpr cudnnPointwiseMode_t kKnown[] = {
      CUDNN_POINTWISE_ADD,         CUDNN_POINTWISE_SUB,       CUDNN_POINTWISE_MUL,    CUDNN_POINTWISE_DIV,
      CUDNN_POINTWISE_MAX,         CUDNN_POINTWISE_MIN,       CUDNN_POINTWISE_CMP_EQ, CUDNN_POINTWISE_CMP_NEQ,
      CUDNN_POINTWISE_CMP_GT,      CUDNN_POINTWISE_CMP_GE,    CUDNN_POINTWISE_CMP_LT, CUDNN_POINTWISE_CMP_LE,
      CUDNN_POINTWISE_LOGICAL_AND, CUDNN_POINTWISE_LOGICAL_OR};
  return std::find(std::begin(kKnown), std::end(kKnown), mode) != std::end(kKnown);
}
bool is_unary(cudnnPointwiseMode_t mode) {
  constexpr cudnnPointwiseMode_t kKnown[] = {CUDNN_POINTWISE_EXP, CUDNN_POINTWISE_LOG, CUDNN_POINTWISE_NEG,
                                             CUDNN_POINTWISE_LOGICAL_NOT, CUDNN_POINTWISE_IDENTITY};
  return std::find(std::begin(kKnown), std::end(kKnown), mode) != std::end(kKnown);
}

}  // namespace ripstop::emulated
