#include "train/plan/rank_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace ripstop {
namespace {

// With deterministic sums, attention on CUDA writes dS of every head to scratch.
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

// The plan by its definition: runs every micro-batch of a step after the first.
RankPlan walk_all(const PlanRequest& request, const MeshCoordinates& at) {
  const Stream stream(Device::meta(request.device));
  MemoryLedger ledger;
  DeviceMesh mesh =
      DeviceMesh::planned(request.mesh, at, request.device, request.step.sharding.stages_per_rank);
  TrainingStep step(request.model, request.step, mesh, stream, ledger);
  const auto no_tokens = [](int64_t) { return HostTokens{}; };
  const auto no_stop = [] { return false; };
  step.run(std::min(request.micro_batches, request.mesh.pipeline), no_tokens, 0.0, {1}, no_stop);
  const AxisBytes before = mesh.bytes_sent();
  step.run(request.micro_batches, no_tokens, 0.0, {2}, no_stop);
  RankPlan plan;
  plan.traffic_per_step = mesh.bytes_sent() - before;
  step.evaluate(1, no_tokens, no_stop);
  plan.arena = step.arena().peak();
  plan.memory = ledger.peak();
  plan.memory += plan.arena;
  return plan;
}

PlanRequest small_request(bool tied, bool reshard, DType compute) {
  PlanRequest request{.model = {.hidden_size = 32,
                                .intermediate_size = 44,
                                .num_hidden_layers = 3,
                                .num_attention_heads = 4,
                                .num_key_value_heads = 2,
                                .vocab_size = 503,
                                .max_position_embeddings = 64,
                                .tie_word_embeddings = tied},
                      .step = {},
                      .mesh = {.replicate = 1, .fsdp = 1, .tensor = 1}};
  request.step.sharding.compute = compute;
  request.step.sharding.sequence_count = 2;
  request.step.sharding.sequence_length = 64;
  request.step.sharding.reshard_after_forward = reshard;
  return request;
}

void expect_walk_of_all(PlanRequest request, const MeshSizes& mesh, int64_t count, int64_t stage = 0) {
  request.mesh = mesh;
  request.micro_batches = count;
  const MeshCoordinates last{
      .replicate = 0, .fsdp = mesh.fsdp - 1, .tensor = mesh.tensor - 1, .pipeline = stage};
  const RankPlan expected = walk_all(request, last), found = plan_rank(request, last);
  const ShardingOptions& sharding = request.step.sharding;
  const std::string where =
      fmt::format("{}, stage {}, {} ahead, tied {}, reshard {}, recompute {}, {} micro-batches",
                  mesh.to_text(), stage, sharding.pipeline_ahead, request.model.tie_word_embeddings,
                  sharding.reshard_after_forward, to_string(sharding.recompute), count);
  EXPECT_EQ(found.memory, expected.memory) << where;
  EXPECT_EQ(found.arena, expected.arena) << where;
  EXPECT_EQ(found.traffic_per_step, expected.traffic_per_step) << where;
}

// The plan from three micro-batches equals the plan from all, on every mesh, with and without gathers in
// each.
TEST(Plan, EqualsAWalkOfEveryMicroBatch) {
  const MeshSizes meshes[] = {{1, 1, 1}, {1, 3, 1}, {2, 1, 1}, {1, 1, 2}, {1, 2, 2}, {2, 2, 2}};
  for (const MeshSizes& mesh : meshes)
    for (const bool tied : {false, true})
      for (const bool reshard : {false, true})
        for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
          for (const Recompute recompute : kRecomputes)
            for (const int64_t count : {1, 2, 3, 4, 5, 9}) {
              PlanRequest request = small_request(
                  tied, reshard, device == DeviceKind::kCpu ? DType::kFloat32 : DType::kBFloat16);
              request.device = device;
              request.step.sharding.recompute = recompute;
              expect_walk_of_all(request, mesh, count);
            }
}

// The last stage may be a head alone, and a step may have fewer micro-batches than stages.
TEST(Plan, OfAStageEqualsAWalkOfEveryMicroBatch) {
  const MeshSizes meshes[] = {{1, 1, 1, 2}, {2, 2, 1, 3}, {1, 2, 2, 4}};
  for (const MeshSizes& mesh : meshes)
    for (const bool tied : {false, true})
      for (const bool reshard : {false, true})
        for (const double ahead : {1.0, 0.5, 0.0})
          for (const bool lora : {false, true})
            for (const int64_t count : {1, 2, 3, 6, 7, 8, 13, 14, 21, 26, 27}) {
              PlanRequest request = small_request(tied, reshard, DType::kFloat32);
              request.step.sharding.pipeline_ahead = ahead;
              request.step.sharding.recompute = kRecomputes[static_cast<size_t>(count % 3)];
              if (lora) request.step.sharding.lora = {.rank = 2, .alpha = 4};
              for (int64_t stage = 0; stage < mesh.pipeline; ++stage)
                expect_walk_of_all(request, mesh, count, stage);
            }
}

TEST(Plan, OfTwoStagesOnARankEqualsAWalkOfEveryMicroBatch) {
  for (const MeshSizes& mesh : {MeshSizes{1, 1, 1, 2}, MeshSizes{2, 2, 1, 3}})
    for (const bool tied : {false, true})
      for (const bool reshard : {false, true})
        for (const int64_t turns : {1, 2, 3, 4, 9}) {
          PlanRequest request = small_request(tied, reshard, DType::kFloat32);
          request.model.num_hidden_layers = 6;
          request.step.sharding.stages_per_rank = 2;
          request.step.sharding.recompute = kRecomputes[static_cast<size_t>(turns % 3)];
          for (int64_t rank = 0; rank < mesh.pipeline; ++rank)
            expect_walk_of_all(request, mesh, turns * mesh.pipeline, rank);
        }
}

// The bytes over a pipeline's links: each boundary [n, C] goes up once and its gradient down once for each
// micro-batch; ends of a tied table exchange their gradients once.
TEST(Plan, AStageSendsItsBoundariesAndTiedGradients) {
  for (const bool tied : {false, true})
    for (const int64_t count : {1, 5, 40}) {
      PlanRequest request = small_request(tied, true, DType::kBFloat16);
      request.mesh = {1, 2, 2, 3};
      request.micro_batches = count;
      const int64_t boundary = 2 * 2 * 64 / 2 * 32;  // bfloat16, two sequences, half of the rows
      const UnitLayout vocabulary(unit_table(request.model, {}).front(), 2, 0, 2);
      const int64_t table = tied ? 4 * vocabulary.shard_elements() : 0;
      const auto sent = [&](int64_t stage) {
        return plan_rank(request, {.pipeline = stage}).traffic_per_step.pipeline;
      };
      EXPECT_EQ(sent(0), count * boundary + table);
      EXPECT_EQ(sent(1), count * 2 * boundary);
      EXPECT_EQ(sent(2), count * boundary + table);
    }
}

TEST(Plan, TheFullestStageIsAmongThosePlanned) {
  PlanRequest request = small_request(false, true, DType::kBFloat16);
  request.model.num_hidden_layers = 9;
  request.mesh = {1, 2, 1, 4};
  request.micro_batches = 9;
  const std::vector<std::vector<int64_t>> splits{{2, 2, 2, 3}, {1, 5, 2, 1}, {3, 3, 3, 0}, {1, 1, 1, 6}};
  const int64_t fullest[] = {0, 1, 0, 3};
  for (size_t s = 0; s < splits.size(); ++s) {
    request.step.sharding.stage_layers = splits[s];
    const std::vector<StagePlan> stages = plan_stages(request);
    ASSERT_EQ(stages.size(), 4U);
    int64_t most = 0;
    for (int64_t stage = 0; stage < 4; ++stage) {
      const StagePlan& each = stages[static_cast<size_t>(stage)];
      EXPECT_EQ(each.stage.layers, splits[s][static_cast<size_t>(stage)]);
      EXPECT_EQ(each.in_flight, std::vector<int64_t>({7, 5, 3, 1})[static_cast<size_t>(stage)]);
      EXPECT_GE(each.bytes, plan_rank(request, {.pipeline = stage}).memory.total());
      most = std::max(most, each.bytes);
    }
    EXPECT_EQ(plan_fullest(request).memory.total(), most);
    EXPECT_EQ(stages[static_cast<size_t>(fullest[s])].bytes, most);
  }
  request.micro_batches = 2;
  EXPECT_EQ(plan_stages(request).front().in_flight, 2);
}

// A rank keeps what its longer stage needs of each micro-batch in either.
TEST(Plan, TheFullestRankOfTwoStagesIsAmongThosePlanned) {
  PlanRequest request = small_request(false, true, DType::kBFloat16);
  request.model.num_hidden_layers = 12;
  request.mesh = {1, 1, 1, 4};
  request.micro_batches = 8;
  request.step.sharding.stages_per_rank = 2;
  request.step.sharding.stage_layers = {1, 1, 1, 1, 1, 1, 5, 1};
  const std::vector<StagePlan> stages = plan_stages(request);
  ASSERT_EQ(stages.size(), 8U);
  for (size_t s = 0; s < stages.size(); ++s) {
    EXPECT_EQ(stages[s].stage.number, static_cast<int64_t>(s));
    EXPECT_EQ(stages[s].in_flight, std::vector<int64_t>({11, 9, 7, 5})[s % 4]);
    EXPECT_EQ(stages[s].bytes, stages[s % 4].bytes);
  }
  EXPECT_EQ(plan_fullest(request).memory.total(), stages[2].bytes);
  EXPECT_GT(stages[2].bytes, stages[0].bytes);
}

// Ranks of a tensor group register their arenas with each other, so all must have one size.
TEST(Plan, RanksOfATensorGroupHaveArenasOfOneSize) {
  for (const bool tied : {false, true})
    for (const bool overlap : {false, true})
      for (const MeshSizes& mesh : {MeshSizes{1, 1, 2}, MeshSizes{2, 3, 2}, MeshSizes{1, 1, 4}}) {
        PlanRequest request = small_request(tied, true, DType::kBFloat16);
        request.device = DeviceKind::kCuda;
        request.mesh = mesh;
        request.model.num_key_value_heads = 4;
        request.step.sharding.overlap_tensor = overlap;
        for (int64_t fsdp = 0; fsdp < mesh.fsdp; ++fsdp)
          for (int64_t tensor = 1; tensor < mesh.tensor; ++tensor)
            EXPECT_EQ(plan_rank(request, {.fsdp = fsdp, .tensor = tensor}).arena.total(),
                      plan_rank(request, {.fsdp = fsdp}).arena.total())
                << mesh.to_text();
      }
}

// A model of few layers that recomputes needs more for an evaluation than for a step. The plan of a run
// without validations must not include that.
TEST(Plan, WithoutValidationsItIsThatOfAStep) {
  PlanRequest request = small_request(false, true, DType::kFloat32);
  request.model.num_hidden_layers = 1;
  request.model.vocab_size = 16;
  request.step.sharding.recompute = Recompute::kFull;
  const RankPlan with = plan_rank(request, {});
  request.validates = false;
  const RankPlan without = plan_rank(request, {});
  EXPECT_EQ(without.step_arena, with.step_arena);
  EXPECT_EQ(without.arena, without.step_arena);
  EXPECT_EQ(without.evaluation_arena.total(), 0);
  EXPECT_EQ(with.arena.total(), std::max(with.step_arena.total(), with.evaluation_arena.total()));
  EXPECT_EQ(with.memory.total() - without.memory.total(), with.arena.total() - without.arena.total());
}

// Recomputation gathers no weights again. Only kFull sends more, along the tensor axis: for each block a
// gather of the rows that attention reads, and a scatter of its branch.
TEST(Plan, RecomputingRepeatsFewCollectives) {
  for (const bool reshard : {false, true}) {
    PlanRequest request = small_request(false, reshard, DType::kFloat32);
    request.mesh = {.replicate = 2, .fsdp = 2, .tensor = 2};
    request.micro_batches = 3;
    const auto traffic = [&](Recompute recompute) {
      request.step.sharding.recompute = recompute;
      return plan_rank(request, {}).traffic_per_step;
    };
    const AxisBytes none = traffic(Recompute::kNone), full = traffic(Recompute::kFull);
    EXPECT_EQ(traffic(Recompute::kSelective), none);
    EXPECT_EQ(full.fsdp, none.fsdp);
    EXPECT_EQ(full.replicate, none.replicate);
    const int64_t rows = 2 * 64 / 2, bytes = 4 * rows * request.model.hidden_size;
    EXPECT_EQ(full.tensor - none.tensor, 3 * request.model.num_hidden_layers * 2 * bytes);
  }
}

// One block more costs in each mode exactly the bytes that model/recompute.h states.
TEST(Plan, AnotherBlockTakesWhatItsModeKeeps) {
  PlanRequest request{.model = find_model_preset("110m")->config,
                      .step = {},
                      .mesh = {.replicate = 1, .fsdp = 1, .tensor = 2}};
  request.model.vocab_size = 256;  // small, so that the peak is in a block
  request.step.sharding = {.compute = DType::kBFloat16, .sequence_count = 2, .sequence_length = 1024};
  const auto arena = [&](int64_t layers, Recompute recompute) {
    request.model.num_hidden_layers = layers;
    request.step.sharding.recompute = recompute;
    return plan_rank(request, {}).arena.total();
  };
  const int64_t c = 768, kd = 768, f = 2048, h = 12, rows = 2048, ranks = 2;
  const int64_t norms = 2 * (rows / ranks) * 4;  // their inverse root mean squares
  const std::map<Recompute, int64_t> stated{
      {Recompute::kNone, rows * 2 * (6 * c + 2 * kd + 2 * f) / ranks + rows * 4 * h / ranks + norms},
      {Recompute::kSelective, rows * 2 * (4 * c + 2 * kd) / ranks + rows * 4 * h / ranks},
      {Recompute::kFull, rows * 2 * c / ranks}};
  for (const auto& [recompute, bytes] : stated)
    EXPECT_EQ(arena(7, recompute) - arena(6, recompute), bytes) << to_string(recompute);
  EXPECT_LT(arena(6, Recompute::kSelective), arena(6, Recompute::kNone));
  EXPECT_LT(arena(6, Recompute::kFull), arena(6, Recompute::kSelective));
}

// A plan of a billion micro-batches is fast, because only three run.
TEST(Plan, TheNumberOfMicroBatchesCostsNothing) {
  PlanRequest request = small_request(false, true, DType::kFloat32);
  request.mesh = {.replicate = 2, .fsdp = 2, .tensor = 2};
  const auto fsdp_bytes = [&](int64_t count) {
    request.micro_batches = count;
    return plan_rank(request, {}).traffic_per_step.fsdp;
  };
  const int64_t each = fsdp_bytes(5) - fsdp_bytes(4);
  EXPECT_GT(each, 0);
  EXPECT_EQ(fsdp_bytes(1'000'000'000), fsdp_bytes(4) + (1'000'000'000 - 4) * each);
}

// The traffic by operation adds up to the traffic of the plan.
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
      PlanRequest rounded = request;
      rounded.step.sharding.reduce = DType::kBFloat16;
      EXPECT_EQ(2 * plan_rank(rounded, {}).traffic_per_step.replicate, plan.replicate)
          << "half as many bytes";
      EXPECT_EQ(rows.contains({"fsdp", "all_gather"}), mesh.fsdp > 1);
      EXPECT_EQ(rows.contains({"fsdp", "reduce_scatter"}), mesh.fsdp > 1);
      EXPECT_EQ(rows.contains({"tensor", "all_gather"}), mesh.tensor > 1);
      EXPECT_EQ(rows.contains({"tensor", "exchange"}), mesh.tensor > 1 && overlap);
    }
}

}  // namespace
}  // namespace ripstop
