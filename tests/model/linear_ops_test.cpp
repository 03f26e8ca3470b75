// Tests of linear and its two gradients.
#include "model/kernels/cpu/processor.h"
#include "tests/model/op_test.h"

namespace ripstop {
namespace {

class LinearTest : public OpTest {
 protected:
  void SetUp() override {
    if (GetParam().device.kind == DeviceKind::kCpu && dtype() == DType::kBFloat16 && !cpu_has_fast_bfloat16())
      GTEST_SKIP() << "this processor does not multiply bfloat16";
  }
};

struct Sizes {
  int64_t n, i, o;
};
// Of 64 rows a GPU times its algorithms.
constexpr Sizes kLinearSizes[] = {{1, 2, 3},      {17, 48, 33}, {63, 64, 65},
                                  {130, 288, 96}, {64, 40, 56}, {0, 16, 8}};

TEST_P(LinearTest, Forward) {
  for (const auto& [n, i, o] : kLinearSizes) {
    const Values x = random(n * i), w = random(o * i);
    for (const DType result : {dtype(), DType::kFloat32}) {
      const Tensor xt = put(x, {n, i}), wt = put(w, {o, i});
      const auto outputs = repeated(
          [&] {
            const Tensor y = room(result, {n, o});
            kernels().linear(call(workspaces().linear(xt, wt, y)), xt, wt, y);
            return Outputs{get(y)};
          },
          ThreadsMatter::kYes);
      expect_close(outputs[0], reference::product(x, w, n, i, o, false, true), result, 2);
    }
  }
}

TEST_P(LinearTest, BackwardInput) {
  for (const auto& [n, i, o] : kLinearSizes)
    for (const DType result : {dtype(), DType::kFloat32})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
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
  for (const auto& [n, i, o] : kLinearSizes)
    for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
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
