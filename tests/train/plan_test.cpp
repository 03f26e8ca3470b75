#include "train/plan.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

// dS of every head is written out where sums must have a fixed order.
TEST(Plan, DeterministicAttentionTakesScratchOnCuda) {
  PlanRequest request{.model = find_model_preset("110m")->config,
                      .step = {},
                      .mesh = {.replicate = 1, .fsdp = 1, .tensor = 1},
                      .device = DeviceKind::kCuda};
  request.model.vocab_size = 32000;
  request.step.sharding.compute = DType::kBFloat16;
  request.step.sharding.sequences = 2;
  request.step.sharding.positions = 1024;
  const auto workspace = [&](bool deterministic) {
    request.deterministic = deterministic;
    return plan_rank(request, {}).memory[MemoryCategory::kWorkspace];
  };
  const std::int64_t heads = request.model.num_attention_heads;
  EXPECT_EQ(workspace(true) - workspace(false), 2 * heads * 2 * 1024 * 1024);
  request.device = DeviceKind::kCpu;
  EXPECT_EQ(workspace(true), workspace(false));
}

}  // namespace
}  // namespace ripstop
