#include "train/plan/rank_plan.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

// If sums must have a fixed order, attention writes dS of every head to scratch.
TEST(Plan, DeterministicAttentionTakesScratchOnCuda) {
  PlanRequest request{.model = find_model_preset("110m")->config,
                      .step = {},
                      .mesh = {.replicate = 1, .fsdp = 1, .tensor = 1},
                      .device = DeviceKind::kCuda};
  constexpr int64_t kPositions = 4096;
  request.model.vocab_size = 256;  // small, so that attention and not the head needs the most scratch
  request.model.max_position_embeddings = kPositions;
  request.step.sharding.compute = DType::kBFloat16;
  request.step.sharding.sequence_count = 1;
  request.step.sharding.sequence_length = kPositions;
  const auto memory = [&](bool deterministic) {
    request.deterministic = deterministic;
    return plan_rank(request, {}).memory;
  };
  const int64_t scores = 2 * request.model.num_attention_heads * kPositions * kPositions;
  EXPECT_GE(memory(true)[MemoryCategory::kWorkspace], scores);
  EXPECT_LT(memory(false)[MemoryCategory::kWorkspace], scores);
  EXPECT_GT(memory(true).total(), memory(false).total());
  request.device = DeviceKind::kCpu;
  EXPECT_EQ(memory(true), memory(false));
}

}  // namespace
}  // namespace ripstop
