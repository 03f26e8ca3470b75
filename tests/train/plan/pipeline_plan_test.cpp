#include "train/plan/pipeline_plan.h"

#include <gtest/gtest.h>

#include "tests/train/config/small_config.h"
#include "train/plan/fitting_meshes.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

// Eight layers beside which the head hardly counts.
RunConfig piped(int64_t stages, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{"model.num_hidden_layers=8", "model.vocab_size=300", "data.sequence_length=64",
                               "train.global_batch_sequences=8", "train.micro_batch_sequences=1"};
  all.insert(all.end(), more.begin(), more.end());
  RunConfig config = parsed(kSmallest, all);
  config.mesh.pipeline = stages;
  return config;
}

RunTarget ranks_of(int64_t ranks, std::optional<int64_t> memory = std::nullopt) {
  return run_target(ranks, DeviceKind::kCpu, memory, 300);
}

ResolvedRun resolved(const RunConfig& config, std::optional<int64_t> memory = std::nullopt) {
  return resolve_run(config, ranks_of(*config.mesh.pipeline, memory));
}

std::vector<int64_t> layers_of(const RunConfig& config, const RunTarget& target) {
  return resolve_run(config, target).step.sharding.stage_layers;
}

TEST(PipelinePlan, LayersAreSplitByTheTargetsOfTheData) {
  EXPECT_EQ(layers_of(piped(1), ranks_of(1)), std::vector<int64_t>{});
  const RunConfig config = piped(2, {"model.vocab_size=20000"});
  RunTarget target = ranks_of(2);
  const std::vector<int64_t> all = layers_of(config, target);
  EXPECT_GT(all.front(), all.back()) << "the head computes all rows";
  target.rows.target_share = 0.01;
  EXPECT_EQ(layers_of(config, target), (std::vector<int64_t>{4, 4}));
}

TEST(PipelinePlan, LayersMayBeGiven) {
  RunConfig config = piped(3);
  config.mesh.pipeline_layers = {5, 2, 1};
  EXPECT_EQ(layers_of(config, ranks_of(3)), *config.mesh.pipeline_layers);
  config.mesh.pipeline_stages_per_rank = 2;
  config.mesh.pipeline_layers = {2, 2, 1, 1, 1, 1};
  config.train.micro_batch_sequences = 3;
  EXPECT_EQ(layers_of(config, ranks_of(3)), *config.mesh.pipeline_layers);
  config.mesh.pipeline_stages_per_rank = 1;
  config.mesh.pipeline_layers = {5, 2, 2};
  expect_error([&] { resolved(config); }, ExitCode::kUsage, "9 layers, the model has 8",
               "mesh.pipeline_layers = [3, 3, 2]");
}

// Without a pipeline, too, the key must not be a number that nobody reads.
TEST(PipelinePlan, LayersOfOneStageAreAllLayers) {
  RunConfig config = piped(1);
  config.mesh.pipeline_layers = {8};
  EXPECT_EQ(layers_of(config, ranks_of(1)), *config.mesh.pipeline_layers);
  config.mesh.pipeline_layers = {5};
  EXPECT_THROW(layers_of(config, ranks_of(1)), Error);
}

TEST(PipelinePlan, TooManyStagesAreRefused) {
  EXPECT_EQ(resolved(piped(9)).step.sharding.stage_layers.back(), 0) << "a head alone";
  expect_error([&] { resolved(piped(10)); }, ExitCode::kResources, "", "1 to 9");
}

RunConfig interleaved(int64_t ranks, const std::vector<std::string>& more = {}) {
  RunConfig config = piped(ranks, more);
  config.mesh.pipeline_stages_per_rank = 2;
  return config;
}

TEST(PipelinePlan, TwoStagesOnARankNeedWholeTurns) {
  const auto refused = [](const RunConfig& config, const std::string& what, const std::string& hint) {
    expect_error([&] { resolved(config); }, ExitCode::kUsage, what, hint);
  };
  EXPECT_EQ(resolved(interleaved(4)).micro_batches, 8);
  refused(interleaved(4, {"train.micro_batch_sequences=3"}),
          "need a multiple of mesh.pipeline = 4 micro-batches, and a step has 3",
          "train.micro_batch_sequences that do: 2, 1; mesh.pipeline_stages_per_rank = 1");
  refused(interleaved(3, {"train.global_batch_sequences=10", "train.micro_batch_sequences=1"}),
          "and a step has 10", "train.micro_batch_sequences that do: 4; ");
  expect_error([&] { resolved(interleaved(9)); }, ExitCode::kResources, "9 makes 18 stages", "1 to 4");
  RunConfig few = interleaved(4, {"train.global_batch_sequences=3"});
  refused(few, "and a step has 3", "train.global_batch_sequences = 4 does");
  few.train.micro_batch_sequences = std::nullopt;
  refused(few, "and a step has 3", "train.global_batch_sequences = 4 does");
  few.train.micro_batch_sequences = 2;
  refused(few, "and a step has 2", "train.global_batch_sequences = 8 does");
  RunConfig automatic = interleaved(4, {"train.global_batch_sequences=24"});
  automatic.train.micro_batch_sequences = std::nullopt;
  EXPECT_EQ(resolved(automatic).micro_batches, 4);
}

// The most micro-batches for which there is room are begun ahead.
TEST(PipelinePlan, TheMemoryDecidesHowManyAreInFlight) {
  const RunConfig config = piped(4);
  std::vector<int64_t> bytes;
  for (const double ahead : {1.0, 0.5, 0.0}) {
    ResolvedRun run = resolved(config);
    EXPECT_EQ(run.step.sharding.pipeline_ahead, 1);
    run.step.sharding.pipeline_ahead = ahead;
    bytes.push_back(plan_fullest(run.request(DeviceKind::kCpu)).memory.total());
  }
  ASSERT_GT(bytes[0], bytes[1]);
  ASSERT_GT(bytes[1], bytes[2]);
  const auto ahead = [&](int64_t memory) {
    const ResolvedRun run = resolved(config, memory);
    EXPECT_EQ(run.step.sharding.recompute, Recompute::kNone) << "which would cost more";
    EXPECT_LE(run.memory().total(), memory);
    return run.step.sharding.pipeline_ahead;
  };
  EXPECT_EQ(ahead(bytes[0]), 1);
  EXPECT_EQ(ahead(bytes[0] - 1), 0.5);
  EXPECT_EQ(ahead(bytes[1] - 1), 0);
  EXPECT_NE(resolved(config, bytes[2] - 1).step.sharding.recompute, Recompute::kNone);
}

// Kept units come before more micro-batches in flight.
TEST(PipelinePlan, UnitsAreKeptIfThatFits) {
  const auto planned = [](const std::vector<std::string>& more, std::optional<int64_t> memory) {
    return resolve_run(piped(2, more), ranks_of(4, memory));
  };
  const auto bytes = [&](bool reshard, double ahead) {
    ResolvedRun run = planned({}, std::nullopt);
    run.step.sharding.reshard_after_forward = reshard;
    run.step.sharding.pipeline_ahead = ahead;
    return plan_fullest(run.request(DeviceKind::kCpu)).memory.total();
  };
  const int64_t kept = bytes(false, 0), resharded = bytes(true, 1);
  ASSERT_LT(resharded, kept);
  const auto reshards = [&](const std::string& value, std::optional<int64_t> memory) {
    const ResolvedRun run = planned({"train.reshard_after_forward=" + value}, memory);
    EXPECT_EQ(run.mesh.fsdp, 2);
    EXPECT_EQ(run.step.sharding.recompute, Recompute::kNone) << "which would cost more";
    EXPECT_TRUE(run.fits(ranks_of(4, memory)));
    return run.step.sharding.reshard_after_forward;
  };
  EXPECT_FALSE(reshards("auto", std::nullopt));
  EXPECT_FALSE(reshards("auto", kept));
  EXPECT_EQ(planned({}, kept).step.sharding.pipeline_ahead, 0);
  EXPECT_TRUE(reshards("auto", kept - 1));
  EXPECT_EQ(planned({}, kept - 1).step.sharding.pipeline_ahead, 1);
  EXPECT_TRUE(reshards("true", kept));
  EXPECT_FALSE(planned({"train.reshard_after_forward=false"}, kept - 1).step.sharding.reshard_after_forward)
      << "as asked for, with more recomputation";
  EXPECT_TRUE(resolve_run(piped(1), ranks_of(4)).step.sharding.reshard_after_forward);
}

TEST(PipelinePlan, IdleShareIsThatOfTheBubbleAndOfUnequalStages) {
  const auto share = [](const RunConfig& config) { return resolved(config).pipeline_idle_share; };
  EXPECT_EQ(share(piped(1)), 0);
  EXPECT_NEAR(share(piped(2)), 1.0 / 9, 0.01);
  EXPECT_NEAR(share(piped(4)), 3.0 / 11, 0.02);
  EXPECT_NEAR(share(piped(4, {"train.global_batch_sequences=64"})), 3.0 / 67, 0.04);
  EXPECT_NEAR(share(piped(4, {"train.global_batch_sequences=100000"})), 0, 0.04);
  EXPECT_NEAR(share(interleaved(4)), 1.5 / 9.5, 0.04);
  RunConfig uneven = piped(2, {"train.global_batch_sequences=10000"});
  uneven.mesh.pipeline_layers = {6, 2};
  EXPECT_NEAR(share(uneven), 1 - 8.0 / 12, 0.02);
  const ResolvedRun run = resolved(piped(4, {"train.micro_batch_sequences=3"}));
  EXPECT_EQ(run.idle_share_in_all(), 1 - (1 - run.idle_share) * (1 - run.pipeline_idle_share));
  EXPECT_GT(run.idle_share, 0);
}

// More rows a micro-batch would idle longer.
TEST(PipelinePlan, MicroBatchesHaveAFewThousandRows) {
  RunConfig config = piped(2, {"train.global_batch_sequences=512"});
  config.train.micro_batch_sequences = std::nullopt;
  EXPECT_EQ(resolved(config).step.sharding.sequence_count, 32);
  config.mesh.pipeline = 1;
  EXPECT_EQ(resolved(config).step.sharding.sequence_count, 64);
}

bool has_note(const ResolvedRun& run, const std::string& text) {
  return std::ranges::any_of(run.notes, [&](const std::string& note) { return note.find(text) == 0; });
}

TEST(PipelinePlan, NotesSayWhatFewMicroBatchesCost) {
  EXPECT_FALSE(has_note(resolved(piped(4)), "8 micro"));
  const ResolvedRun few = resolved(piped(4, {"train.micro_batch_sequences=3"}));
  EXPECT_TRUE(has_note(few, "3 micro-batches on 4 stages, 5"));
  EXPECT_TRUE(std::ranges::any_of(few.notes, [](const std::string& note) {
    return note.find("train.micro_batch_sequences=1 gives 8, 2") != std::string::npos;
  }));
  EXPECT_TRUE(has_note(resolved(piped(9)), "8 micro-batches on 9 stages"));
}

TEST(PipelinePlan, NotesNameStagesThatSpanNodes) {
  const auto noted = [](int64_t ranks_per_node) {
    RunTarget target = ranks_of(8);
    target.ranks_per_node = ranks_per_node;
    return has_note(resolve_run(piped(2), target), "a stage of 4 ranks spans nodes of");
  };
  EXPECT_TRUE(noted(2));
  EXPECT_FALSE(noted(4));
  EXPECT_FALSE(noted(8));
}

TEST(PipelinePlan, TextHasEachStage) {
  const std::string text = pipeline_text(resolved(piped(3)), DeviceKind::kCpu);
  EXPECT_HAS(text, "3 stages of 3, 3 and 2 layers, ");
  EXPECT_HAS(text, "% idle; 5, 3 and 1 micro-batches in flight; ");
  EXPECT_HAS(text, "MiB a rank; units kept whole after forward");
  const ResolvedRun resharded = resolved(piped(3, {"train.reshard_after_forward=true"}));
  EXPECT_HAS(pipeline_text(resharded, DeviceKind::kCpu), "; units resharded after forward");
  const std::string two = pipeline_text(resolved(interleaved(2)), DeviceKind::kCpu);
  EXPECT_HAS(two, "4 stages of 2, 2, 2 and 2 layers, two on each rank, ");
  EXPECT_HAS(two, "% idle; 5 and 3 micro-batches in flight; ");
}

}  // namespace
}  // namespace ripstop
