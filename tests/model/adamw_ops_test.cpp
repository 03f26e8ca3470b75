// Tests of AdamW with bfloat16 moments: the random bits of an element, and the rounding with them.
#include <array>
#include <bit>

#include "model/core/philox.h"
#include "tests/model/op_test.h"

namespace ripstop {
namespace {

using Bfloat16MomentsTest = OpTest;

constexpr uint64_t kKey = 0x123456789abcdef0ULL;

/// The random bits of logical element `element`: 16 for the first moment, 16 for the second.
std::array<uint32_t, 2> bits_of(int64_t element, int64_t step) {
  const auto block = static_cast<uint64_t>(element / 4);
  const uint32_t word = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
                               kKey)[static_cast<size_t>(element % 4)];
  return {word & 0xffffU, word >> 16};
}

double rounded_with(double value, uint32_t bits) {
  const uint32_t sum = std::bit_cast<uint32_t>(static_cast<float>(value)) + bits;
  return static_cast<double>(std::bit_cast<float>(sum & 0xffff0000U));
}

/// Values on a grid, so that sums and products of a few are exact in float32.
Values on_grid(int64_t count, int64_t steps, double unit, int64_t factor) {
  Values values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>((i * factor + 3) % (2 * steps) - steps) * unit);
  return values;
}

/// MomentBits of a call whose elements are neighbours, from logical element `first` on.
MomentBits dense(int64_t first) {
  return {.key = kKey, .origin = first, .begin = 0, .stride = 1, .columns = 1};
}

// Every element gets the bits of its logical place, for rows of all widths and from any first element.
TEST_P(Bfloat16MomentsTest, EachElementIsRoundedWithItsOwnBits) {
  struct Place {
    int64_t count, origin, begin, stride, columns;
  };
  constexpr int64_t kFar = (int64_t{1} << 33) + 8;  // its block does not fit 32 bits
  for (const Place& place : {Place{1, 0, 0, 1, 1}, Place{20000, 0, 0, 1, 1}, Place{301, 5, 2, 64, 64},
                             Place{2048, 24, 512, 64, 256}, Place{515, 3, 11, 24, 37},
                             Place{700, kFar, 1024, 8, 88}, Place{77, 1, 0, 16, 16}}) {
    const int64_t count = place.count;
    const AdamWStep step{.learning_rate = 1e-2,
                         .beta1 = 0.5,
                         .beta2 = 0.5,
                         .weight_decay = 0.1,
                         .step = (int64_t{1} << 32) + 3,
                         .bits = {kKey, place.origin, place.begin, place.stride, place.columns}};
    const Values gradient = on_grid(count, 1500, 0x1p-10, 7919), master = random(count, DType::kFloat32);
    const Values first = on_grid(count, 255, 0x1p-7, 31);
    Values second = on_grid(count, 255, 0x1p-7, 57);
    for (double& v : second) v = std::abs(v);
    const auto outputs = repeated([&] {
      const Tensor m = put(master, DType::kFloat32, {count}), f = put(first, DType::kBFloat16, {count});
      const Tensor s = put(second, DType::kBFloat16, {count}), copy = room(dtype(), {count});
      kernels().adamw(call(), step, put({1, 1}, DType::kFloat32, {2}),
                      put(gradient, DType::kFloat32, {count}), m, f, s, copy);
      return Outputs{get(m), get(f), get(s), get(copy)};
    });
    // The reference's moments are exact, like the kernel's before it rounds them.
    const auto exact = reference::adamw(step, 1, gradient, {master, first, second});
    expect_close(outputs[0], exact.master, DType::kFloat32);
    expect_close(outputs[3], exact.master, dtype());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t p = place.begin + i,
                    element = place.origin + p / place.stride * place.columns + p % place.stride;
      const auto [of_first, of_second] = bits_of(element, step.step);
      ASSERT_EQ(outputs[1][at(i)], rounded_with(exact.first[at(i)], of_first))
          << "element " << i << " of rows of " << place.stride << " in " << place.columns;
      ASSERT_EQ(outputs[2][at(i)], rounded_with(exact.second[at(i)], of_second)) << "element " << i;
    }
  }
}

// Shards may begin anywhere, so parts of a call give the bits of the whole call.
TEST_P(Bfloat16MomentsTest, ACutChangesNoBit) {
  constexpr int64_t kCount = 3001;
  AdamWStep step{.learning_rate = 1e-2, .beta2 = 0.999, .weight_decay = 0.1, .step = 7};
  const Values gradient = random(kCount, DType::kFloat32), master = random(kCount, DType::kFloat32);
  const Values first = random(kCount, DType::kBFloat16);
  Values second = random(kCount, DType::kBFloat16);
  for (double& v : second) v = std::abs(v);
  const auto run = [&](const std::vector<int64_t>& cuts) {
    const Tensor g = put(gradient, DType::kFloat32, {kCount}), m = put(master, DType::kFloat32, {kCount});
    const Tensor f = put(first, DType::kBFloat16, {kCount}), s = put(second, DType::kBFloat16, {kCount});
    const Tensor copy = room(dtype(), {kCount});
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const int64_t begin = cuts[c], count = cuts[c + 1] - begin;
      step.bits = {.key = kKey, .origin = 4, .begin = 40 + begin, .stride = 40, .columns = 88};
      kernels().adamw(call(), step, put({0.25, 1}, DType::kFloat32, {2}), g.row_range(begin, count),
                      m.row_range(begin, count), f.row_range(begin, count), s.row_range(begin, count),
                      copy.row_range(begin, count));
    }
    return Outputs{get(m), get(f), get(s), get(copy)};
  };
  const Outputs whole = run({0, kCount});
  EXPECT_EQ(run({0, 1, 7, 300, 301, 2048, kCount}), whole);
  EXPECT_EQ(run({0, 256, 1024, kCount}), whole);
}

// If a value lies a fraction f of a step above the lower bfloat16, the share f of elements is rounded up, so
// that the mean is the value. The two moments of an element are rounded independently.
TEST_P(Bfloat16MomentsTest, TheMeanIsTheValue) {
  constexpr int64_t kCount = 16384;
  for (const double sign : {1.0, -1.0})
    for (const double fraction : {0.02, 0.3, 0.5, 0.97}) {
      // 1 + fraction steps of 2^-7, and its square.
      const auto gradient = static_cast<float>(sign * (1 + 2 * fraction / 128));
      const AdamWStep step{.beta1 = 0.5, .beta2 = 0.5, .step = 3, .bits = dense(kCount)};
      const Tensor f = put(Values(kCount, sign), DType::kBFloat16, {kCount});
      const Tensor s = put(Values(kCount, 1), DType::kBFloat16, {kCount});
      kernels().adamw(call(), step, put({1, 1}, DType::kFloat32, {2}),
                      put(Values(kCount, static_cast<double>(gradient)), DType::kFloat32, {kCount}),
                      put(Values(kCount, 0), DType::kFloat32, {kCount}), f, s, {});
      const double square = static_cast<double>(gradient) * static_cast<double>(gradient);
      // The place of each value between its two neighbours.
      const double first = fraction, second = std::fmod((square - 1) / 2 * 128, 1.0);
      const double below = 1 + std::floor((square - 1) / 2 * 128) / 128;
      double first_up = 0, second_up = 0, both = 0;
      const Values m = get(f), v = get(s);
      for (size_t i = 0; i < m.size(); ++i) {
        const bool up = m[i] == sign * (1 + 1.0 / 128), second_is_up = v[i] == below + 1.0 / 128;
        ASSERT_TRUE(up || m[i] == sign) << m[i];
        ASSERT_TRUE(second_is_up || v[i] == below) << v[i];
        first_up += up, second_up += second_is_up, both += up && second_is_up;
      }
      const auto expect_share = [&](double found, double share) {
        // Five standard deviations: one seed of a million fails by chance.
        EXPECT_NEAR(found / kCount, share, 5 * std::sqrt(share * (1 - share) / kCount)) << "of " << fraction;
      };
      expect_share(first_up, first);
      expect_share(second_up, second);
      expect_share(both, first * second);
    }
}

// With beta2 = 0.999 a step changes a second moment by less than half a step of bfloat16. Rounding to nearest
// would never change it; here the mean changes as it should.
TEST_P(Bfloat16MomentsTest, TheSecondMomentIsNotFrozen) {
  constexpr int64_t kCount = 1024, kSteps = 200;
  constexpr double kBeta = 0.999;
  for (const double square : {2.0, 0.0}) {
    const Tensor gradient = put(Values(kCount, std::sqrt(square)), DType::kFloat32, {kCount});
    const Tensor scale = put({1, 1}, DType::kFloat32, {2});
    const Tensor m = put(Values(kCount, 0), DType::kFloat32, {kCount});
    const Tensor f = put(Values(kCount, 0), DType::kBFloat16, {kCount});
    const Tensor s = put(Values(kCount, 1), DType::kBFloat16, {kCount});
    double nearest = 1, exact = 1;
    for (int64_t t = 1; t <= kSteps; ++t) {
      kernels().adamw(call(), {.beta2 = kBeta, .step = t, .bits = dense(0)}, scale, gradient, m, f, s, {});
      nearest = reference::stored(kBeta * nearest + (1 - kBeta) * square, DType::kBFloat16);
      exact = kBeta * exact + (1 - kBeta) * square;
    }
    EXPECT_EQ(nearest, 1) << "rounding to nearest loses every step";
    double mean = 0;
    for (const double v : get(s)) mean += v / kCount;
    EXPECT_GT(std::abs(exact - 1), 0.15);
    EXPECT_NEAR(mean, exact, 0.01);
  }
}

// A second moment is never negative, no moment becomes infinite, and exact values and signs stay.
TEST_P(Bfloat16MomentsTest, NothingLeavesItsRange) {
  constexpr int64_t kCount = 4096;
  const double largest = static_cast<double>(std::bit_cast<float>(0x7f7f0000U)), tiny = 0x1p-133;
  const auto run = [&](double gradient, double first, double second, const AdamWStep& step) {
    const Tensor m = put(Values(kCount, 0.5), DType::kFloat32, {kCount});
    const Tensor f = put(Values(kCount, first), DType::kBFloat16, {kCount});
    const Tensor s = put(Values(kCount, second), DType::kBFloat16, {kCount});
    kernels().adamw(call(), step, put({1, 1}, DType::kFloat32, {2}),
                    put(Values(kCount, gradient), DType::kFloat32, {kCount}), m, f, s, {});
    for (const Tensor* t : {&m, &f, &s})
      for (const double x : get(*t)) EXPECT_TRUE(std::isfinite(x)) << "gradient " << gradient;
    for (const double v : get(s)) EXPECT_GE(v, 0);
    return Outputs{get(m), get(f), get(s)};
  };
  const AdamWStep step{.learning_rate = 1e-3, .step = 2, .bits = dense(64)};
  EXPECT_EQ(run(0, 0, 0, step)[1], Values(kCount, 0));
  EXPECT_EQ(run(0, 0, 0, step)[2], Values(kCount, 0));
  EXPECT_EQ(run(0, 0, 0, step)[0], Values(kCount, 0.5)) << "a weight without gradients";
  // In float32 the square of this gradient is infinite, and so is the next gradient's difference to the
  // moment.
  EXPECT_EQ(run(1e25, 0, 1, step)[2], Values(kCount, largest));
  EXPECT_EQ(run(3.4e38, -largest, largest, {.beta1 = 0, .step = 2, .bits = dense(0)})[1],
            Values(kCount, largest));
  // Values between the largest bfloat16 and infinity, and just below it, where half are rounded up.
  EXPECT_EQ(run(3.4e38, largest, 0, {.beta1 = 0, .step = 2, .bits = dense(0)})[1], Values(kCount, largest));
  run(-3.38e38, -largest, largest, {.beta1 = 0.5, .step = 2, .bits = dense(0)});
  // The smallest numbers that bfloat16 holds.
  const Outputs small = run(0, -tiny, tiny, {.beta1 = 0.5, .step = 2, .bits = dense(0)});
  for (const double m : small[1]) EXPECT_TRUE(m == -tiny || m == 0) << m;
}

TEST_P(Bfloat16MomentsTest, ASkippedUpdateLeavesThem) {
  constexpr int64_t kCount = 100;
  const Values master = random(kCount, DType::kFloat32), moments = random(kCount, DType::kBFloat16);
  const Tensor m = put(master, DType::kFloat32, {kCount}), copy = room(dtype(), {kCount});
  const Tensor f = put(moments, DType::kBFloat16, {kCount}), s = put(moments, DType::kBFloat16, {kCount});
  kernels().adamw(call(), {.learning_rate = 1}, put({0, 0}, DType::kFloat32, {2}),
                  put(master, DType::kFloat32, {kCount}), m, f, s, copy);
  EXPECT_EQ(get(m), master);
  EXPECT_EQ(get(f), moments);
  EXPECT_EQ(get(s), moments);
  expect_close(get(copy), master, dtype());
}
RIPSTOP_OP_TESTS(Bfloat16MomentsTest);

}  // namespace
}  // namespace ripstop
