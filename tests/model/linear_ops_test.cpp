// Tests of linear and its two gradients.
#include <algorithm>

#include "tests/model/op_test.h"

namespace ripstop {
namespace {

using LinearTest = OpTest;

struct Sizes {
  int64_t n, i, o;
};
// From 64 rows on, a GPU times its algorithms.
constexpr Sizes kLinearSizes[] = {{1, 2, 3},      {17, 48, 33}, {63, 64, 65},
                                  {130, 288, 96}, {64, 40, 56}, {0, 16, 8}};

TEST_P(LinearTest, Forward) {
  for (const Sizes& sizes : kLinearSizes)
    for (const DType result : {dtype(), DType::kFloat32})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        const int64_t n = sizes.n, i = sizes.i, o = sizes.o;
        const Values x = random(n * i), w = random(o * i), before = random(n * o, result);
        const Tensor xt = put(x, {n, i}), wt = put(w, {o, i});
        const auto outputs = repeated(
            [&] {
              const Tensor y =
                  accumulate == Accumulate::kYes ? put(before, result, {n, o}) : room(result, {n, o});
              kernels().linear(call(workspaces().linear(xt, wt, y, accumulate)), xt, wt, y, accumulate);
              return Outputs{get(y)};
            },
            ThreadsMatter::kYes);
        Values expected = reference::product(x, w, n, i, o, false, true);
        for (size_t e = 0; accumulate == Accumulate::kYes && e < expected.size(); ++e)
          expected[e] += before[e];
        expect_close(outputs[0], expected, result, 2);
      }
}

/// Columns [first, first + columns) of `rows` rows of a wider matrix, whose other columns must not change.
struct Columns {
  int64_t rows, wide, first, columns;

  Tensor of(const Tensor& whole) const { return whole.column_range(first, columns); }
  Values of(const Values& whole) const {
    Values part;
    for (int64_t r = 0; r < rows; ++r)
      part.insert(part.end(), whole.begin() + r * wide + first, whole.begin() + r * wide + first + columns);
    return part;
  }
  /// `whole` with `part` in place of these columns.
  Values with(Values whole, const Values& part) const {
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(part.begin() + r * columns, columns, whole.begin() + r * wide + first);
    return whole;
  }
};

// Operands that are a few columns of wider matrices, as for adapters.
TEST_P(LinearTest, ColumnsOfWiderMatrices) {
  constexpr int64_t kRank = 5, kIn = 40, kOut = 24;
  for (const int64_t n : {1, 17, 64}) {
    const Columns low{n, 3 * kRank, kRank, kRank}, high{n, 2 * kOut, kOut, kOut};
    const Values x = random(n * kIn), a = random(kRank * kIn), b = random(kOut * kRank),
                 u = random(n * low.wide), y = random(n * high.wide), dx = random(n * kIn);
    const Tensor at_ = put(a, {kRank, kIn}), bt = put(b, {kOut, kRank}), xt = put(x, {n, kIn});
    const auto outputs = repeated(
        [&] {
          const Tensor ut = put(u, {n, low.wide}), yt = put(y, {n, high.wide}), dxt = put(dx, {n, kIn});
          const Tensor up = low.of(ut), yp = high.of(yt);
          kernels().linear(call(workspaces().linear(up, bt, yp, Accumulate::kYes)), up, bt, yp,
                           Accumulate::kYes);
          const Tensor db = room(DType::kFloat32, {kOut, kRank});
          kernels().linear_backward_weight(call(workspaces().linear_backward_weight(
                                               high.of(put(y, {n, high.wide})), up, db, Accumulate::kNo)),
                                           high.of(put(y, {n, high.wide})), up, db, Accumulate::kNo);
          kernels().linear_backward_input(
              call(workspaces().linear_backward_input(up, at_, dxt, Accumulate::kYes)), up, at_, dxt,
              Accumulate::kYes);
          const Tensor dut = put(u, {n, low.wide}), dup = low.of(dut), dyp = high.of(put(y, {n, high.wide}));
          kernels().linear_backward_input(
              call(workspaces().linear_backward_input(dyp, bt, dup, Accumulate::kNo)), dyp, bt, dup,
              Accumulate::kNo);
          const Tensor down = put(u, {n, low.wide}), down_part = low.of(down);
          kernels().linear(call(workspaces().linear(xt, at_, down_part, Accumulate::kNo)), xt, at_, down_part,
                           Accumulate::kNo);
          return Outputs{get(yt), get(db), get(dxt), get(dut), get(down)};
        },
        ThreadsMatter::kYes);
    const auto sum = [](Values left, const Values& right) {
      for (size_t e = 0; e < left.size(); ++e) left[e] += right[e];
      return left;
    };
    const Values up = low.of(u), yp = high.of(y);
    expect_close(outputs[0], high.with(y, sum(yp, reference::product(up, b, n, kRank, kOut, false, true))),
                 dtype(), 2);
    expect_close(outputs[1], reference::product(yp, up, kOut, n, kRank, true, false), DType::kFloat32, 2);
    expect_close(outputs[2], sum(dx, reference::product(up, a, n, kRank, kIn, false, false)), dtype(), 2);
    expect_close(outputs[3], low.with(u, reference::product(yp, b, n, kOut, kRank, false, false)), dtype(),
                 2);
    expect_close(outputs[4], low.with(u, reference::product(x, a, n, kIn, kRank, false, true)), dtype(), 2);
  }
}

TEST_P(LinearTest, BackwardInput) {
  for (const Sizes& sizes : kLinearSizes)
    for (const DType result : {dtype(), DType::kFloat32})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        const int64_t n = sizes.n, i = sizes.i, o = sizes.o;
        const Values dy = random(n * o), w = random(o * i), before = random(n * i, result);
        const Tensor dyt = put(dy, {n, o}), wt = put(w, {o, i});
        const auto outputs = repeated(
            [&] {
              const Tensor dx =
                  accumulate == Accumulate::kYes ? put(before, result, {n, i}) : room(result, {n, i});
              kernels().linear_backward_input(
                  call(workspaces().linear_backward_input(dyt, wt, dx, accumulate)), dyt, wt, dx, accumulate);
              return Outputs{get(dx)};
            },
            ThreadsMatter::kYes);
        Values expected = reference::product(dy, w, n, o, i, false, false);
        for (size_t e = 0; accumulate == Accumulate::kYes && e < expected.size(); ++e)
          expected[e] += before[e];
        expect_close(outputs[0], expected, result, 2);
      }
}

TEST_P(LinearTest, BackwardWeight) {
  for (const Sizes& sizes : kLinearSizes)
    for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
      const int64_t n = sizes.n, i = sizes.i, o = sizes.o;
      const Values dy = random(n * o), x = random(n * i), before = random(o * i, DType::kFloat32);
      const Tensor dyt = put(dy, {n, o}), xt = put(x, {n, i});
      const auto outputs = repeated(
          [&] {
            const Tensor dw = accumulate == Accumulate::kYes ? put(before, DType::kFloat32, {o, i})
                                                             : room(DType::kFloat32, {o, i});
            kernels().linear_backward_weight(
                call(workspaces().linear_backward_weight(dyt, xt, dw, accumulate)), dyt, xt, dw, accumulate);
            return Outputs{get(dw)};
          },
          ThreadsMatter::kYes);
      Values expected = reference::product(dy, x, o, n, i, true, false);
      for (size_t e = 0; accumulate == Accumulate::kYes && e < expected.size(); ++e) expected[e] += before[e];
      expect_close(outputs[0], expected, DType::kFloat32, 2);
    }
}

RIPSTOP_OP_TESTS(LinearTest);

}  // namespace
}  // namespace ripstop
