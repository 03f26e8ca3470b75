// Tests of dropout and scale, the elementwise operations of adapters.
#include "model/core/philox.h"
#include "tests/model/op_test.h"

namespace ripstop {
namespace {

using DropoutTest = OpTest;

/// 1 where element (row, column) of a call stays, else 0: the contract of DropoutBits, element by element.
double kept(const DropoutBits& bits, int64_t row, int64_t column) {
  const int64_t n = bits.first_row + row, l = bits.first_column + column;
  const int64_t sequence = bits.first_sequence + n / bits.sequence_length * bits.sequence_step;
  const auto low = [](int64_t x) { return static_cast<uint32_t>(x); };
  const PhiloxBlock words =
      philox({low(l / 4), low((l / 4) >> 32), low(n % bits.sequence_length), low(sequence)}, bits.key);
  return words[at(l % 4)] >= bits.threshold ? 1 : 0;
}

TEST_P(DropoutTest, DropsByLogicalElement) {
  for (const int64_t rows : {1, 17})
    for (const int64_t columns : {2, 16, 37, 1100})
      for (const int64_t first : {0, 3, 1 << 20}) {
        const DropoutBits bits{.key = 0x1234567890abcdefULL,
                               .threshold = uint32_t{1} << 30,
                               .first_row = 5 * first,
                               .first_column = first,
                               .sequence_length = 7,
                               .first_sequence = first,
                               .sequence_step = 3};
        const Values x = random(rows * columns), y = random(rows * columns);
        Values dropped(x.size()), sum(x.size());
        double stayed = 0;
        for (int64_t i = 0; i < rows * columns; ++i) {
          const double m = kept(bits, i / columns, i % columns);
          dropped[at(i)] = m * x[at(i)];
          sum[at(i)] = y[at(i)] + dropped[at(i)];
          stayed += m;
        }
        if (rows * columns > 1000) {
          EXPECT_NEAR(stayed / static_cast<double>(rows * columns), 0.75, 0.05);
        }
        const auto outputs = repeated([&] {
          const Tensor out = room(dtype(), {rows, columns}), added = put(y, {rows, columns});
          kernels().dropout(call(), put(x, {rows, columns}), bits, out);
          kernels().add_dropout(call(), put(x, {rows, columns}), bits, added);
          return Outputs{get(out), get(added)};
        });
        EXPECT_EQ(outputs[0], dropped);
        expect_close(outputs[1], sum, dtype());
      }
}

TEST_P(DropoutTest, AThresholdOfZeroDropsNothing) {
  const Values x = random(64);
  const Tensor out = room(dtype(), {4, 16});
  kernels().dropout(call(), put(x, {4, 16}), {.sequence_length = 4}, out);
  EXPECT_EQ(get(out), x);
}

TEST_P(DropoutTest, Scale) {
  for (const int64_t count : {1, 16, 17, 20000}) {
    const Values x = random(count);
    Values expected = x;
    for (double& v : expected) v *= 1.6;
    const auto outputs = repeated([&] {
      const Tensor t = put(x, {count});
      kernels().scale(call(), 1.6, t);
      return Outputs{get(t)};
    });
    expect_close(outputs[0], expected, dtype());
  }
}

RIPSTOP_OP_TESTS(DropoutTest);

}  // namespace
}  // namespace ripstop
