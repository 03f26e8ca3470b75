// What is planned by operation adds up to the plan of the step.
#include "train/check/sent_by_operation.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace ripstop {
namespace {

TEST(SentByOperation, AddsUpToThePlanOnEveryMesh) {
  PlanRequest request;
  request.model = find_model_preset("debug")->config;
  request.model.vocab_size = 61;
  request.micro_batches = 2;
  request.step.sharding.sequence_length = 64;
  for (const MeshSizes& mesh :
       {MeshSizes{1, 1, 1}, MeshSizes{2, 1, 1}, MeshSizes{1, 3, 1}, MeshSizes{1, 1, 2}, MeshSizes{2, 2, 2}})
    for (const auto& [overlap, rank] : {std::pair<bool, int64_t>{false, 0}, {true, 0}, {false, 2}}) {
      SCOPED_TRACE(fmt::format("{} overlap {} rank {}", mesh.to_text(), overlap, rank));
      request.mesh = mesh;
      request.step.sharding.overlap_tensor = overlap;
      // Frozen weights that stay are gathered in the first step alone.
      request.step.sharding.reshard_after_forward = rank == 0;
      request.step.sharding.lora = {.rank = rank, .alpha = 1};
      std::map<std::string, int64_t> sums;
      std::set<std::pair<std::string, std::string>> rows;
      for (const SentByOperation& sent : sent_by_operation(request, {})) {
        EXPECT_TRUE(rows.insert({sent.axis, sent.operation}).second) << "one row each";
        EXPECT_GT(sent.calls, 0);
        EXPECT_GT(sent.bytes, 0);
        sums[sent.axis] += sent.bytes;
      }
      const AxisBytes plan = plan_rank(request, {}).traffic_per_step;
      EXPECT_EQ(sums["replicate"], plan.replicate);
      EXPECT_EQ(sums["fsdp"], plan.fsdp);
      EXPECT_EQ(sums["tensor"], plan.tensor);
      EXPECT_EQ(sums["world"] > 0, mesh.ranks() > 1);
      EXPECT_EQ(rows.contains({"replicate", "all_reduce"}), mesh.replicate > 1);
      EXPECT_EQ(rows.contains({"fsdp", "all_gather"}), mesh.fsdp > 1);
      EXPECT_EQ(rows.contains({"fsdp", "reduce_scatter"}), mesh.fsdp > 1);
      EXPECT_EQ(rows.contains({"tensor", "all_gather"}), mesh.tensor > 1);
      EXPECT_EQ(rows.contains({"tensor", "exchange"}), mesh.tensor > 1 && overlap);
    }
}

}  // namespace
}  // namespace ripstop
