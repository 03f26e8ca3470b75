#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "model/core/words.h"

namespace ripstop {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat64, kInt32 };

constexpr int64_t element_bytes(DType dtype) {
  return dtype == DType::kBFloat16 ? 2 : dtype == DType::kFloat64 ? 8 : 4;
}

/// The spelling of configs and checkpoints.
template <>
inline constexpr std::array<std::string_view, 4> kWords<DType> = {"float32", "bfloat16", "float64", "int32"};

/// A bfloat16 number: the upper half of a float32.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN.
  explicit BFloat16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
    bits = nan ? static_cast<uint16_t>((u >> 16) | 0x40U)
               : static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kFloat32> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::kBFloat16> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kFloat64> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::kInt32> {};

}  // namespace ripstop
