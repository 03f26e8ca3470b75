// Tests the gradients of reference.h against central differences of its forward formulas.
#include "tests/model/reference.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace ripstop::reference {
namespace {

Values random(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Values values(at(count));
  for (double& v : values) v = normal(generator);
  return values;
}

double inner(const Values& a, const Values& b) {
  return dot(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

/// Expects `gradient` to be the gradient of `function` at x.
void expect_gradient(const std::function<double(const Values&)>& function, const Values& x,
                     const Values& gradient) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  for (size_t i = 0; i < x.size(); ++i) {
    Values above = x, below = x;
    above[i] += kStep;
    below[i] -= kStep;
    EXPECT_NEAR(gradient[i], (function(above) - function(below)) / (2 * kStep), 1e-7) << "element " << i;
  }
}

TEST(ReferenceTest, RmsNorm) {
  const Values sum = random(3 * 5, 1), weight = random(5, 2), dy = random(3 * 5, 3);
  const auto gradient = rmsnorm_backward(dy, sum, weight, rmsnorm(sum, weight, 3, 0.1).inverse_rms);
  expect_gradient([&](const Values& x) { return inner(dy, rmsnorm(x, weight, 3, 0.1).normed); }, sum,
                  gradient.sum);
  expect_gradient([&](const Values& w) { return inner(dy, rmsnorm(sum, w, 3, 0.1).normed); }, weight,
                  gradient.weight);
}

TEST(ReferenceTest, NormOfHeads) {
  const Heads heads{2, 1, 4};
  const Values qkv = random(3 * heads.row(), 1), weight = random(8, 2), dy = random(3 * heads.row(), 3);
  const NormGradient gradient = norm_heads_backward(dy, qkv, weight, 0.1, heads);
  expect_gradient([&](const Values& x) { return inner(dy, norm_heads(x, weight, 0.1, heads)); }, qkv,
                  gradient.sum);
  expect_gradient([&](const Values& w) { return inner(dy, norm_heads(qkv, w, 0.1, heads)); }, weight,
                  gradient.weight);
}

TEST(ReferenceTest, Attention) {
  const Heads heads{4, 2, 6};
  const std::vector<int32_t> offset{0, 1, 5, 8};
  const Values qkv = random(8 * heads.row(), 4), dy = random(8 * heads.query * heads.size, 5);
  expect_gradient([&](const Values& x) { return inner(dy, attention(x, offset, heads).out); }, qkv,
                  attention_backward(dy, qkv, attention(qkv, offset, heads), offset, heads));
}

TEST(ReferenceTest, RopeIsItsOwnInverse) {
  const Heads heads{2, 1, 6};
  const Values qkv = random(4 * heads.row(), 6), dy = random(4 * heads.row(), 7), angle = angles(9, 6);
  const std::vector<int32_t> position{0, 1, 8, 3};
  expect_gradient(
      [&](const Values& x) { return inner(dy, rope(x, position, angle, heads, Direction::kForward)); }, qkv,
      rope(dy, position, angle, heads, Direction::kBackward));
}

TEST(ReferenceTest, Swiglu) {
  const Values gate_up = random(2 * 2 * 3, 8), dy = random(2 * 3, 9);
  expect_gradient([&](const Values& x) { return inner(dy, swiglu(x, 2, 3)); }, gate_up,
                  swiglu_backward(gate_up, dy, 2, 3));
}

TEST(ReferenceTest, CrossEntropy) {
  const Values logits = random(2 * 7, 10), ones(2, 1.0);
  const std::vector<int32_t> target{0, 4};
  expect_gradient([&](const Values& x) { return inner(ones, cross_entropy(x, target, 7, 5).loss); }, logits,
                  cross_entropy(logits, target, 7, 5).dlogits);
}

}  // namespace
}  // namespace ripstop::reference
