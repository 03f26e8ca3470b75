// Tests the memory of the head for every number of rows with a target.
#include "model/head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <vector>

#include "model/ops/tensor_axis.h"

namespace ripstop::head_loss {
namespace {

// The vocabulary is not a multiple of any step, and the rows are more than one chunk.
constexpr int64_t kHidden = 288, kVocabulary = 2003, kSequences = 5, kPositions = 300;
constexpr int64_t kVocabularyRows = 2008;  // with the padding of a slice
constexpr int64_t kRows = kSequences * kPositions;
const ModelConfig kConfig{.hidden_size = kHidden, .vocab_size = kVocabulary};

/// Fills a tensor or parameter with small values that all differ.
void fill(const Tensor& t, double scale) {
  for (int64_t i = 0; i < t.count(); ++i) {
    const auto value = static_cast<float>(scale * std::sin(0.7 * static_cast<double>(i) + 0.3));
    if (t.dtype == DType::kBFloat16)
      t.as<BFloat16>()[i] = BFloat16(value);
    else
      t.as<float>()[i] = value;
  }
}

// Forward and backward of a head on one device, with weights that begin at zero.
struct Head {
  Head(const Device& d, DType dtype, const MemoryUse& capacity)
      : device(d),
        stream(d),
        compute(dtype),
        batch_memory(d, ledger, kSequences, kPositions),
        arena(d, ledger, capacity) {
    layer.norm = {.value = zeros(compute, {kHidden}),
                  .gradient = zeros(DType::kFloat32, {kHidden}),
                  .accumulate = Accumulate::kYes};
    layer.output = {.value = zeros(compute, {kVocabularyRows, kHidden}),
                    .gradient = zeros(DType::kFloat32, {kVocabularyRows, kHidden}),
                    .accumulate = Accumulate::kNo};
  }
  Tensor zeros(DType dtype, const Shape& shape) {
    memory.emplace_back(device, ledger, MemoryCategory::kWeights, shape.count() * element_bytes(dtype));
    return tensor_in(memory.back(), 0, dtype, shape);
  }

  /// The loss over the first `targets` rows.
  double run(int64_t targets) {
    const auto rows = static_cast<size_t>(kRows);
    std::vector<int32_t> token(rows, 1), position(rows, 0), target(rows, -1);
    for (int64_t i = 0; i < targets; ++i) target[static_cast<size_t>(i)] = 7;
    const std::vector<int32_t> offset{0, static_cast<int32_t>(kRows)};
    const Batch batch = batch_memory.load(stream, kSequences, {token, position, target, offset});
    Context context{stream, arena, axis};
    const Tensor total = zeros(DType::kFloat64, {1});
    Residual residual{.sum = zeros(compute, {kRows, kHidden}), .branch = zeros(compute, {kRows, kHidden})};
    if (device.kind != DeviceKind::kMeta) fill(residual.sum, 1);
    Frame frame(arena);
    layer.forward_backward(context, batch, layer.output, residual, layer.allocate(context, kRows, compute),
                           total, zeros(compute, {kRows, kHidden}));
    return device.kind == DeviceKind::kMeta ? 0 : total.as<double>()[0];
  }

  Device device;
  Stream stream;
  DType compute;
  MemoryLedger ledger;
  BatchMemory batch_memory;
  Arena arena;
  WholeAxis axis;
  std::list<Buffer> memory;
  HeadLoss layer{kConfig, 1, 0};
};

// oneDNN may need more scratch for fewer rows, as in bfloat16 with AMX. The plan knows only the largest
// number of rows, and must be enough for every number.
TEST(HeadLossArena, PlanHoldsForAnyNumberOfTargets) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Head planned(Device::meta(DeviceKind::kCpu), dtype, {});
    planned.run(kRows);
    for (const int64_t targets : {0,   1,   7,   16,   63,   127,  128,  129,  200,  300, 460,
                                  511, 640, 777, 1000, 1023, 1024, 1025, 1200, 1499, 1500}) {
      Head head(Device::cpu(), dtype, planned.arena.peak());
      const double expected = static_cast<double>(targets) * std::log(static_cast<double>(kVocabulary));
      EXPECT_NEAR(head.run(targets), expected, 1e-5 * expected) << targets << " targets";
      MemoryUse peak = head.arena.peak();
      // Without rows there is no product and no scratch for it, which only some processors need.
      if (targets == 0) {
        EXPECT_LE(peak[MemoryCategory::kWorkspace], planned.arena.peak()[MemoryCategory::kWorkspace]);
        peak[MemoryCategory::kWorkspace] = planned.arena.peak()[MemoryCategory::kWorkspace];
      }
      EXPECT_EQ(peak, planned.arena.peak()) << targets << " targets in " << to_string(dtype);
    }
  }
}

// Rows are padded to a multiple of a step. Padding must not reach a gradient, whatever the arena held before.
TEST(HeadLossArena, RowsThatFillUpReachNoGradient) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Head planned(Device::meta(DeviceKind::kCpu), dtype, {});
    planned.run(kRows);
    std::vector<std::vector<float>> gradients;
    for (const bool dirty : {false, true}) {
      Head head(Device::cpu(), dtype, planned.arena.peak());
      fill(head.layer.output.value, 0.1);
      fill(head.layer.norm.value, 1);
      if (dirty) {
        Frame frame(head.arena);
        const Tensor all = head.arena.allocate(DType::kFloat32, {planned.arena.peak().total() / 4});
        std::fill_n(all.as<float>(), all.count(), std::numeric_limits<float>::quiet_NaN());
      }
      head.run(777);
      const Tensor& gradient = head.layer.output.gradient;
      gradients.emplace_back(gradient.as<float>(), gradient.as<float>() + gradient.count());
    }
    EXPECT_NE(gradients[0], std::vector<float>(gradients[0].size(), 0.0F));
    EXPECT_EQ(gradients[0], gradients[1]) << to_string(dtype);
  }
}

TEST(HeadLossChunks, LargerOnesGiveTheSameSums) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<double> losses;
    std::vector<std::vector<float>> gradients;
    for (const int64_t chunk : {1024, 2048}) {
      Head planned(Device::meta(DeviceKind::kCpu), dtype, {});
      planned.layer.chunk_rows = chunk;
      planned.run(kRows);
      Head head(Device::cpu(), dtype, planned.arena.peak());
      head.layer.chunk_rows = chunk;
      fill(head.layer.output.value, 0.1);
      fill(head.layer.norm.value, 1);
      losses.push_back(head.run(1300));
      EXPECT_EQ(head.arena.peak(), planned.arena.peak());
      const Tensor& gradient = head.layer.output.gradient;
      gradients.emplace_back(gradient.as<float>(), gradient.as<float>() + gradient.count());
    }
    EXPECT_NEAR(losses[0], losses[1], 1e-6 * losses[0]);
    float largest = 0;
    for (const float value : gradients[0]) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0);
    for (size_t i = 0; i < gradients[0].size(); ++i)
      ASSERT_NEAR(gradients[0][i], gradients[1][i], 1e-5 * largest) << i;
  }
}

}  // namespace
}  // namespace ripstop::head_loss
