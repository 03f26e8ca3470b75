// Tests that the sum of GradientNorm does not depend on the order in which the shards come.
#include "parallel/gradient_norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/ops/tensor_axis.h"

namespace ripstop {
namespace {

TEST(GradientNorm, IsAddedUpInTheOrderOfUnits) {
  const std::vector<int64_t> counts{40000, 1, 17000, 0, 33333};
  std::vector<std::vector<float>> gradients;
  for (const int64_t count : counts) {
    gradients.emplace_back(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      gradients.back()[static_cast<size_t>(i)] = 1e-3F * static_cast<float>((i * 7919 + count) % 4001 - 2000);
  }
  const auto part = [&](size_t unit, int64_t first, int64_t count) {
    return Tensor{gradients[unit].data() + first, DType::kFloat32, {count}, Device::cpu()};
  };
  const Stream stream(Device::cpu());
  MemoryLedger ledger;
  Arena arena(Device::cpu(), ledger, MemoryUse{{0, 0, 0, 0, 0, 4096}});
  const WholeAxis axis;
  Context context{stream, arena, axis};
  // The first element of unit 0 is replicated, and comes last.
  double expected = 0, total = 0;
  const Tensor expected_tensor{&expected, DType::kFloat64, {1}, Device::cpu()},
      total_tensor{&total, DType::kFloat64, {1}, Device::cpu()};
  add_squared_norm(context, part(0, 0, 1), expected_tensor);
  for (size_t unit = 0; unit < counts.size(); ++unit)
    add_squared_norm(context, part(unit, unit == 0 ? 1 : 0, counts[unit] - (unit == 0 ? 1 : 0)),
                     expected_tensor);

  GradientNorm norm(stream, ledger, counts.size(), 40000);
  // Beside the arena: two float64 a unit, padded, and one for each of three blocks of elements.
  EXPECT_EQ(ledger.now()[MemoryCategory::kWorkspace], 4096 + 256 + 3 * 8);
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{4, 3, 2, 1, 0}, std::vector<size_t>{2, 0, 4, 1, 3}}) {
    total = 0;
    for (const size_t unit : order)
      norm.start(unit, part(unit, unit == 0 ? 1 : 0, counts[unit] - (unit == 0 ? 1 : 0)), stream);
    norm.take_replicated(context, 0, part(0, 0, 1));
    norm.finish(context, total_tensor);
    EXPECT_EQ(total, expected);
  }
}

}  // namespace
}  // namespace ripstop
