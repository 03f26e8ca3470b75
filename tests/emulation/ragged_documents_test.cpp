// The kernels around attention plans: offsets, log_sum_exp by place, joined gradients, documents of one row.
#include <gtest/gtest.h>

#include <random>

#include "model/device/device.h"
#include "tests/emulation/emulated_kernels.h"
#include "tests/emulation/emulator.h"

namespace ripstop {
namespace {

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

struct RaggedDocumentsTest : testing::TestWithParam<emulation::Order> {
  RaggedDocumentsTest() { emulation::set_order(GetParam()); }
  ~RaggedDocumentsTest() override { emulation::set_order(emulation::Order::kForward); }

  Documents documents(int64_t longest) {
    return {{offset.data(), DType::kInt32, {static_cast<int64_t>(offset.size())}, Device::cpu()},
            static_cast<int64_t>(offset.size()) - 1,
            longest};
  }
  KernelCall call() const { return {stream, nullptr}; }
  std::vector<BFloat16> random(int64_t count) {
    std::vector<BFloat16> values(at(count));
    for (BFloat16& v : values) v = BFloat16(std::uniform_real_distribution<float>(-1, 1)(generator));
    return values;
  }

  Stream stream{Device::cpu()};
  std::vector<int32_t> offset{0, 1, 301, 302, 305};
  std::mt19937 generator{3};
};

constexpr Heads kHeads{4, 2, 24};
constexpr int64_t kQuery = 4 * 24, kKeyValue = 2 * 24, kRow = kQuery + 2 * kKeyValue;

TEST_P(RaggedDocumentsTest, AreLocatedInEveryTensor) {
  offset.clear();
  for (int d = 0; d <= 700; ++d) offset.push_back(d * (d + 1));
  const size_t n = offset.size();
  std::vector<int64_t> row(n + 1, -1), query(n + 1, -1), key_value(n + 1, -1), heads(n + 1, -1);
  std::vector<int32_t> length(n, -1);
  emulation::ragged().locate_documents(
      call(), documents(1400), kHeads,
      {row.data(), query.data(), key_value.data(), heads.data(), length.data()});
  for (size_t d = 0; d < n; ++d) {
    EXPECT_EQ(row[d], offset[d] * kRow);
    EXPECT_EQ(query[d], offset[d] * kQuery);
    EXPECT_EQ(key_value[d], offset[d] * kKeyValue);
    EXPECT_EQ(heads[d], offset[d] * 4);
    EXPECT_EQ(length[d], d + 1 < n ? offset[d + 1] - offset[d] : -1);
  }
  EXPECT_EQ(row[n], -1);
  EXPECT_EQ(heads[n], -1);
}

TEST_P(RaggedDocumentsTest, LogSumExpGoesToPlacesAndBack) {
  const int64_t rows = offset.back(), length = 384;
  const cuda::DocumentGroup group{1, 2};  // rows 1 to 301, and 301
  std::vector<float> by_row(at(rows * kHeads.query)), by_place(at(2 * kHeads.query * length), -1);
  for (size_t i = 0; i < by_row.size(); ++i) by_row[i] = static_cast<float>(i + 1);
  const Tensor log_sum_exp{by_row.data(), DType::kFloat32, {rows, kHeads.query}, Device::cpu()};
  emulation::ragged().log_sum_exp_by_place(call(), documents(300), group, length, log_sum_exp,
                                           by_place.data());
  for (int64_t d = 0; d < 2; ++d)
    for (int64_t h = 0; h < kHeads.query; ++h)
      for (int64_t p = 0; p < length; ++p) {
        const int64_t row = d == 0 ? 1 + p : 301 + p, size = d == 0 ? 300 : 1;
        const float expected = p < size ? by_row[at(row * kHeads.query + h)] : 0;
        ASSERT_EQ(by_place[at((d * kHeads.query + h) * length + p)], expected) << d << ", " << h << ", " << p;
      }
  const auto before = by_row;
  std::fill(by_row.begin(), by_row.end(), -1.0F);
  emulation::ragged().log_sum_exp_by_row(call(), documents(300), group, length, by_place.data(), log_sum_exp);
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t h = 0; h < kHeads.query; ++h) {
      const size_t i = at(n * kHeads.query + h);
      ASSERT_EQ(by_row[i], n >= 1 && n < 302 ? before[i] : -1) << n << ", " << h;
    }
}

TEST_P(RaggedDocumentsTest, GradientsLieSideBySide) {
  const int64_t rows = offset.back();
  const auto dq = random(rows * kQuery), dk = random(rows * kKeyValue), dv = random(rows * kKeyValue);
  std::vector<BFloat16> joined(at(rows * kRow));
  emulation::ragged().join_gradients(call(), {dq.data(), dk.data(), dv.data()}, kHeads,
                                     {joined.data(), DType::kBFloat16, {rows, kRow}, Device::cpu()});
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t i = 0; i < kRow; ++i) {
      const uint16_t expected = i < kQuery ? dq[at(n * kQuery + i)].bits
                                : i < kQuery + kKeyValue
                                    ? dk[at(n * kKeyValue + i - kQuery)].bits
                                    : dv[at(n * kKeyValue + i - kQuery - kKeyValue)].bits;
      ASSERT_EQ(joined[at(n * kRow + i)].bits, expected) << n << ", " << i;
    }
}

TEST_P(RaggedDocumentsTest, ARowAloneGivesItsValueOn) {
  const int64_t rows = offset.back();
  auto dout = random(rows * kQuery), dqkv = random(rows * kRow);
  const auto before = dqkv;
  emulation::ragged().single_row_gradients(call(), documents(300), kHeads,
                                           {dout.data(), DType::kBFloat16, {rows, kQuery}, Device::cpu()},
                                           {dqkv.data(), DType::kBFloat16, {rows, kRow}, Device::cpu()});
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t i = 0; i < kRow; ++i) {
      const auto value = static_cast<float>(dqkv[at(n * kRow + i)]);
      if (n != 0 && n != 301) {
        ASSERT_EQ(dqkv[at(n * kRow + i)].bits, before[at(n * kRow + i)].bits) << n << ", " << i;
      } else if (i < kQuery + kKeyValue) {
        ASSERT_EQ(value, 0) << n << ", " << i;
      } else {
        const int64_t head = (i - kQuery - kKeyValue) / 24, element = i % 24;
        const float sum = static_cast<float>(dout[at(n * kQuery + 2 * head * 24 + element)]) +
                          static_cast<float>(dout[at(n * kQuery + (2 * head + 1) * 24 + element)]);
        ASSERT_EQ(value, static_cast<float>(BFloat16(sum))) << n << ", " << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, RaggedDocumentsTest,
                         testing::Values(emulation::Order::kForward, emulation::Order::kReversed),
                         [](const auto& order) {
                           return order.param == emulation::Order::kForward ? "Forward" : "Reversed";
                         });

}  // namespace
}  // namespace ripstop
