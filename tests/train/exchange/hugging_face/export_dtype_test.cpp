#include "train/exchange/hugging_face/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ripstop {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value of a binary16 number, by definition.
double value_of_half(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double size = exponent == 0    ? std::ldexp(fraction, -24)
                      : exponent == 31 ? (fraction == 0 ? double{kInfinity} : std::nan(""))
                                       : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -size : size;
}

TEST(ExportRounding, EveryHalfKeepsItsBits) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double value = value_of_half(half);
    if (std::isnan(value)) continue;
    EXPECT_EQ(to_float16(static_cast<float>(value)), half) << value;
  }
  EXPECT_TRUE(std::isnan(value_of_half(to_float16(std::nanf("")))));
}

// Tests the middle of each two neighbours, which goes to the even one, and the floats just below and above.
TEST(ExportRounding, HalvesRoundToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const double middle = (value_of_half(low) + value_of_half(high)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(double{tie}, middle);
    EXPECT_EQ(to_float16(tie), (bits & 1) == 0 ? low : high) << middle;
    EXPECT_EQ(to_float16(std::nextafter(tie, 0.0f)), low) << middle;
    EXPECT_EQ(to_float16(std::nextafter(tie, kInfinity)), high) << middle;
    EXPECT_EQ(to_float16(-tie), 0x8000 | to_float16(tie)) << middle;
  }
}

TEST(ExportRounding, HalvesEndAt65520) {
  EXPECT_EQ(to_float16(65504.0f), 0x7bff);
  EXPECT_EQ(to_float16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(to_float16(65520.0f), 0x7c00);
  EXPECT_EQ(to_float16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(to_float16(-kInfinity), 0xfc00);
  EXPECT_EQ(to_float16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(ExportRounding, ALostNumberIsNamed) {
  std::vector<uint16_t> to(3);
  const std::vector<float> large = {1.0f, -70000.0f, 80000.0f};
  EXPECT_EQ(convert(large.data(), 3, ExportDType::kFloat16, to.data()), -70000.0f);
  EXPECT_FALSE(convert(large.data(), 3, ExportDType::kBFloat16, to.data()));
  const std::vector<float> largest = {1.0f, std::numeric_limits<float>::max(), 0.0f};
  EXPECT_TRUE(convert(largest.data(), 3, ExportDType::kBFloat16, to.data()));
  // Rounding does not lose infinite numbers.
  const std::vector<float> infinite = {kInfinity, -kInfinity, 0.0f};
  EXPECT_FALSE(convert(infinite.data(), 3, ExportDType::kFloat16, to.data()));
}

TEST(ExportRounding, Bfloat16RoundsToNearestAndTiesToEven) {
  // 1 + 2^-8 is in the middle of 1 and 1 + 2^-7, and 1 + 3 * 2^-8 in the middle of the next two numbers.
  const std::vector<float> from = {1.00390625f, 1.01171875f, std::nextafter(1.00390625f, 2.0f), -1.00390625f};
  std::vector<uint16_t> to(from.size());
  EXPECT_FALSE(convert(from.data(), 4, ExportDType::kBFloat16, to.data()));
  EXPECT_EQ(to, (std::vector<uint16_t>{0x3f80, 0x3f82, 0x3f81, 0xbf80}));
}

TEST(ExportRounding, Float32KeepsEveryBit) {
  const std::vector<uint32_t> bits = {0x80000000u, 1u, 0x7fa00001u, 0x7f7fffffu};
  std::vector<uint32_t> to(bits.size());
  EXPECT_FALSE(convert(reinterpret_cast<const float*>(bits.data()), 4, ExportDType::kFloat32, to.data()));
  EXPECT_EQ(to, bits);
}

}  // namespace
}  // namespace ripstop
