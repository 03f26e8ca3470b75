// A fixture for tests of layers: memory, parameters with values, a batch, and derivatives by differences.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <list>
#include <random>
#include <string>
#include <vector>

#include "model/batch.h"
#include "model/ops/context.h"
#include "model/ops/tensor_axis.h"
#include "model/parameter.h"
#include "model/residual.h"

namespace ripstop::layers {

/// One rank on the CPU, float32. Tensors live as long as the fixture.
class LayerFixture {
 public:
  LayerFixture()
      : stream(Device::cpu()),
        arena(Device::cpu(), ledger, MemoryUse{{0, 0, 0, int64_t{64} << 20, 0, 0}}),
        context{stream, arena, axis} {}

  Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32) {
    memory.emplace_back(Device::cpu(), ledger, MemoryCategory::kActivations,
                        shape.count() * element_bytes(dtype));
    return tensor_in(memory.back(), 0, dtype, shape);
  }
  Tensor random(const Shape& shape, double deviation = 1.0, double mean = 0.0) {
    const Tensor t = zeros(shape);
    std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
    for (int64_t i = 0; i < t.count(); ++i) t.as<float>()[i] = normal(engine);
    return t;
  }
  /// A parameter with random values and a gradient full of ones, which backward must overwrite.
  void fill(Parameter& parameter, const Shape& shape, double deviation, double mean = 0.0) {
    parameter.value = random(shape, deviation, mean);
    parameter.gradient = zeros(shape);
    std::fill_n(parameter.gradient.as<float>(), shape.count(), 1.0F);
    parameter.accumulate = Accumulate::kNo;
  }
  /// A vector parameter, whose gradient begins at zero and is added to, as in FsdpUnit.
  void fill_vector(Parameter& parameter, int64_t count) {
    fill(parameter, {count}, 0.2, 1.0);
    std::fill_n(parameter.gradient.as<float>(), count, 0.0F);
    parameter.accumulate = Accumulate::kYes;
  }
  /// Two sequences of 8 rows: documents of 5 and 3, and of 8 rows.
  Batch batch(int64_t vocabulary) {
    std::vector<int32_t> token, position, target;
    const std::vector<int32_t> offset{0, 5, 8, 16};
    for (int32_t d = 0; d < 3; ++d)
      for (int32_t i = offset[static_cast<size_t>(d)]; i < offset[static_cast<size_t>(d) + 1]; ++i) {
        token.push_back(static_cast<int32_t>((i * 7 + 3) % vocabulary));
        position.push_back(i - offset[static_cast<size_t>(d)]);
        target.push_back(i % 3 == 0 ? -1 : static_cast<int32_t>((i * 5 + 1) % vocabulary));
      }
    batches.emplace_back(Device::cpu(), ledger, 2, 8);
    return batches.back().load(stream, 2, {token, position, target, offset});
  }

  std::mt19937 engine{11};
  MemoryLedger ledger;
  Stream stream;
  Arena arena;
  WholeAxis axis;
  Context context;
  std::list<Buffer> memory;
  std::list<BatchMemory> batches;
};

/// A residual stream of `rows` rows, with the shared sum that full recomputation needs.
inline Residual allocate_residual(Context& context, int64_t rows, int64_t columns, DType dtype,
                                  Recompute recompute) {
  Residual residual{.branch = context.arena.allocate(dtype, {rows, columns})};
  if (recompute == Recompute::kFull) residual.shared_sum = context.arena.allocate(dtype, {rows, columns});
  return residual;
}

inline double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.count(); ++i) sum += static_cast<double>(a.as<float>()[i]) * b.as<float>()[i];
  return sum;
}

/// Compares `gradient` with central differences of `loss` in every element of `value`.
/// Elements differ by rounding (float32) and curvature, so the tolerance is relative to the largest element.
inline void expect_gradient(const Tensor& value, const Tensor& gradient, const std::function<double()>& loss,
                            const std::string& what, double step = 1e-2, double tolerance = 2e-3) {
  double largest = 0;
  std::vector<double> expected;
  for (int64_t i = 0; i < value.count(); ++i) {
    float& x = value.as<float>()[i];
    const float at = x;
    const auto up = static_cast<float>(at + step), down = static_cast<float>(at - step);
    x = up;
    const double high = loss();
    x = down;
    const double low = loss();
    x = at;
    expected.push_back((high - low) / (static_cast<double>(up) - static_cast<double>(down)));
    largest = std::max(largest, std::abs(expected.back()));
  }
  ASSERT_GT(largest, 0) << what << " has no influence: the test tests nothing";
  for (int64_t i = 0; i < value.count(); ++i)
    EXPECT_NEAR(gradient.as<float>()[i], expected[static_cast<size_t>(i)], tolerance * largest)
        << what << " element " << i;
}

}  // namespace ripstop::layers
