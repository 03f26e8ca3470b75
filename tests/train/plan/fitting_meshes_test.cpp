#include "train/plan/fitting_meshes.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/expect_has.h"
#include "tests/test_files.h"
#include "tests/train/commands/run_program.h"
#include "tests/train/config/small_config.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

RunTarget target_of(int64_t ranks, std::optional<int64_t> memory_bytes, int64_t ranks_per_node = 0) {
  RunTarget target = run_target(ranks, DeviceKind::kCpu, memory_bytes, 32000);
  target.ranks_per_node = ranks_per_node;
  return target;
}

// A config with one head (a tensor axis does not help), one mode of recomputation, and so many layers that
// more ranks need less memory each.
std::vector<std::string> one_head(const std::vector<std::string>& more = {}) {
  // float32, because oneDNN's memory for bfloat16 depends on the processor.
  std::vector<std::string> keys{"model.num_attention_heads=1", "model.num_key_value_heads=1",
                                "model.num_hidden_layers=16", "train.recompute=full",
                                "precision.compute=float32"};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

int64_t need_with_one_head(int64_t ranks) {
  return resolve_run(parsed(kSmallest, one_head({"train.micro_batch_sequences=1"})),
                     target_of(ranks, std::nullopt))
      .memory()
      .total();
}

// The bytes that a rank needs with the smallest micro-batch.
int64_t need(int64_t ranks) {
  return resolve_run(parsed(kSmallest, {"train.micro_batch_sequences=1", "train.recompute=full"}),
                     target_of(ranks, std::nullopt))
      .memory()
      .total();
}

// The refusal of a run that is too large; fails if it fits.
PlanTooLarge refusal_of(const RunConfig& config, const RunTarget& target) {
  try {
    resolve_run(config, target);
  } catch (const PlanTooLarge& error) {
    EXPECT_EQ(error.code(), ExitCode::kResources);
    return error;
  }
  ADD_FAILURE() << "it fits";
  return {"", {}, {}};
}

TEST(FittingMeshes, TheFewestRanksThatFitFitAndFewerDoNot) {
  const RunConfig config = parsed(kSmallest, one_head());
  ASSERT_GT(need_with_one_head(1), need_with_one_head(3));
  ASSERT_GT(need_with_one_head(2), need_with_one_head(3));
  const PlanTooLarge error = refusal_of(config, target_of(1, need_with_one_head(3)));
  ASSERT_TRUE(error.fitting().more_ranks.has_value());
  const FittingMesh& fitting = *error.fitting().more_ranks;
  EXPECT_EQ(fitting.mesh, (MeshSizes{1, 3, 1}));
  EXPECT_EQ(fitting.bytes, need_with_one_head(3));
  EXPECT_TRUE(error.fitting().same_ranks.empty());
  EXPECT_EQ(error.hint().rfind("3 ranks with as much memory each would fit: ", 0), 0u) << error.hint();
  // Both claims of the hint hold.
  EXPECT_NO_THROW(resolve_run(config, target_of(3, need_with_one_head(3))));
  EXPECT_THROW(resolve_run(config, target_of(2, need_with_one_head(3))), PlanTooLarge);
  EXPECT_EQ(error.fitting().least.bytes, need_with_one_head(1));
  EXPECT_NO_THROW(resolve_run(config, target_of(1, error.fitting().least.bytes)));
}

// The hint names the least memory together with its mesh, which may differ from the refused one.
TEST(FittingMeshes, TheLeastMemoryIsThatOfTheMeshBesideIt) {
  const RunConfig config = parsed(kSmallest);
  const PlanTooLarge error = refusal_of(config, target_of(2, 1 << 20));
  const FittingMesh& least = error.fitting().least;
  EXPECT_EQ(least.mesh.ranks(), 2);
  EXPECT_HAS(error.hint(), "with 2 ranks as now, " + least.mesh.to_text() + " with micro_batch_sequences " +
                               std::to_string(least.micro_batch_sequences) + " and recompute full needs " +
                               bytes_text(least.bytes));
  // The hint's mesh with the hint's memory fits, and with less it does not.
  EXPECT_EQ(least.recompute, Recompute::kFull);
  const RunConfig named = parsed(kSmallest, {"mesh.fsdp=" + std::to_string(least.mesh.fsdp),
                                             "mesh.tensor=" + std::to_string(least.mesh.tensor)});
  EXPECT_NO_THROW(resolve_run(named, target_of(2, least.bytes)));
  EXPECT_THROW(resolve_run(named, target_of(2, least.bytes - 1)), PlanTooLarge);
}

// The hint names moments in bfloat16 if only they make these ranks fit.
TEST(FittingMeshes, MomentsInBfloat16AreNamedIfTheyHelp) {
  const RunConfig exact = parsed(kSmallest), rounded = parsed(kSmallest, {"optimizer.moments=bfloat16"});
  const int64_t memory = refusal_of(rounded, target_of(1, 1 << 20)).fitting().least.bytes;
  const PlanTooLarge error = refusal_of(exact, target_of(1, memory));
  ASSERT_TRUE(error.fitting().bfloat16_moments.has_value()) << error.hint();
  EXPECT_LE(error.fitting().bfloat16_moments->bytes, memory);
  EXPECT_HAS(error.hint(), "; a new run with optimizer.moments=bfloat16 fits: ");
  EXPECT_NO_THROW(resolve_run(rounded, target_of(1, memory)));
  // The hint does not name them if they do not help.
  const PlanTooLarge small = refusal_of(exact, target_of(1, memory - 1));
  EXPECT_FALSE(small.fitting().bfloat16_moments.has_value());
  EXPECT_EQ(small.hint().find("moments"), std::string::npos);
}

TEST(FittingMeshes, NodesAreWhole) {
  const RunConfig config = parsed(kSmallest, one_head());
  const int64_t memory = need_with_one_head(3);
  const PlanTooLarge error = refusal_of(config, target_of(2, memory, 2));
  ASSERT_TRUE(error.fitting().more_ranks.has_value());
  EXPECT_EQ(error.fitting().more_ranks->mesh.ranks(), 4);
  EXPECT_HAS(error.hint(), " would fit (--nodes 2 --ntasks-per-node 2): ");
}

// Nodes of three ranks can hold no tensor group that helps, so the hint names nodes of another size.
TEST(FittingMeshes, NodesOfAnotherSizeAreNamed) {
  const ScratchDirectory scratch;
  const std::string config = (scratch / "7b.toml").string();
  std::string text = read_text(std::filesystem::path(RIPSTOP_SOURCE_DIR) / "configs/xsum-llama2-7b.toml");
  const size_t line = text.find("\npretrained") + 1;
  write_bytes(config, text.replace(line, text.find('\n', line) - line, "preset = \"llama2-7b\""));
  const std::string plan =
      "plan " + config + " precision.compute=float32 --device cpu --device-memory 16GiB ";
  for (const std::string nodes :
       {"--nodes 1 --ntasks-per-node 9", "--nodes 2 --ntasks-per-node 3", "--nodes 2 --ntasks-per-node 1"}) {
    const ProgramRun refused = run_program(plan + nodes, "OMP_NUM_THREADS=1");
    EXPECT_EQ(refused.exit_code, 78) << nodes;
    // The number depends on the processor: oneDNN may need memory for products.
    const std::string before = "would fit (";
    const size_t begin = refused.err.find(before), end = refused.err.find(')', begin);
    ASSERT_NE(begin, std::string::npos) << refused.err;
    const std::string words = refused.err.substr(begin + before.size(), end - begin - before.size());
    EXPECT_HAS(words, " mesh.tensor=4");
    const std::string own = nodes.substr(nodes.find("--ntasks")) + ' ';
    EXPECT_EQ(words.find(own), std::string::npos) << words;
    // The named options work, and one tensor group less does not fit.
    expect_success(run_program(plan + words, "OMP_NUM_THREADS=1"));
    int64_t count = 0, tasks = 0;
    ASSERT_EQ(std::sscanf(words.c_str(), "--nodes %ld --ntasks-per-node %ld ", &count, &tasks), 2) << words;
    const int64_t ranks = count * tasks - 4;
    const ProgramRun fewer = run_program(
        plan + fmt::format("--nodes 1 --ntasks-per-node {} mesh.tensor=4", ranks), "OMP_NUM_THREADS=1");
    EXPECT_EQ(fewer.exit_code, 78) << words;
  }
}

// The search for more ranks goes beyond 64 times one rank.
TEST(FittingMeshes, SmallJobsLookAtManyRanks) {
  const int64_t memory = need_with_one_head(128);
  ASSERT_GT(need_with_one_head(64), memory);
  const PlanTooLarge error = refusal_of(parsed(kSmallest, one_head()), target_of(1, memory));
  ASSERT_TRUE(error.fitting().more_ranks.has_value());
  EXPECT_GT(error.fitting().more_ranks->mesh.ranks(), 64);
  EXPECT_LE(error.fitting().more_ranks->mesh.ranks(), 128);
}

// The hint names no tensor groups that span nodes: train would refuse them.
TEST(FittingMeshes, TensorGroupsLieInsideNodes) {
  const PlanTooLarge error = refusal_of(parsed(kSmallest), target_of(6, 1 << 20, 2));
  EXPECT_EQ(error.fitting().least.mesh.tensor, 2);
  const RunConfig across = parsed(kSmallest, {"mesh.allow_tensor_across_nodes=true"});
  EXPECT_EQ(refusal_of(across, target_of(6, 1 << 20, 2)).fitting().least.mesh.tensor, 6);
}

// The config asks for a larger micro-batch than fits: the ranks need not change.
TEST(FittingMeshes, ASmallerMicroBatchIsNamed) {
  const RunConfig config = parsed(kSmallest, {"train.micro_batch_sequences=8", "train.recompute=full"});
  const PlanTooLarge error = refusal_of(config, target_of(1, need(1)));
  ASSERT_FALSE(error.fitting().same_ranks.empty());
  EXPECT_EQ(error.fitting().same_ranks[0].mesh, (MeshSizes{1, 1, 1}));
  EXPECT_EQ(error.fitting().same_ranks[0].micro_batch_sequences, 1);
  EXPECT_FALSE(error.fitting().more_ranks.has_value());
  EXPECT_EQ(error.refused().micro_batch_sequences, 8);
  EXPECT_EQ(error.hint().rfind("these fit: ", 0), 0u) << error.hint();
}

TEST(FittingMeshes, TheLeastMemoryIsThatOfAMicroBatchWithWholeTurns) {
  const RunConfig config =
      parsed(kSmallest, {"mesh.pipeline=4", "mesh.pipeline_stages_per_rank=2", "model.num_hidden_layers=8",
                         "model.max_position_embeddings=2048", "data.sequence_length=2048",
                         "train.global_batch_sequences=10", "train.micro_batch_sequences=3"});
  EXPECT_EQ(refusal_of(config, target_of(4, 1 << 20)).fitting().least.micro_batch_sequences, 3);
}

// The config asks for less recomputation than fits: neither mesh nor micro-batch need change.
TEST(FittingMeshes, MoreRecomputationIsNamed) {
  const std::vector<std::string> one{"train.micro_batch_sequences=1"};
  const auto need_with = [&](const std::string& recompute) {
    return resolve_run(parsed(kSmallest, {one[0], "train.recompute=" + recompute}),
                       target_of(1, std::nullopt))
        .memory()
        .total();
  };
  ASSERT_LT(need_with("selective"), need_with("none"));
  const RunConfig none = parsed(kSmallest, {one[0], "train.recompute=none"});
  const PlanTooLarge error = refusal_of(none, target_of(1, need_with("selective")));
  ASSERT_EQ(error.fitting().same_ranks.size(), 1U);
  EXPECT_EQ(error.fitting().same_ranks[0].recompute, Recompute::kSelective);
  EXPECT_EQ(error.fitting().same_ranks[0].bytes, need_with("selective"));
  EXPECT_HAS(
      error.hint(),
      "these fit: replicate 1 x fsdp 1 x tensor 1 with micro_batch_sequences 1 and recompute selective "
      "needs ");
  EXPECT_HAS(error.what(), "micro_batch_sequences 1 needs ");
  // The hint does not name less recomputation, which needs more memory.
  const RunConfig full = parsed(kSmallest, {one[0], "train.recompute=full"});
  const PlanTooLarge of_full = refusal_of(full, target_of(2, need_with("full") / 2));
  for (const FittingMesh& fitting : of_full.fitting().same_ranks)
    EXPECT_EQ(fitting.recompute, Recompute::kFull);
}

// The words for more ranks include the mode of recomputation if the config's does not fit.
TEST(FittingMeshes, WordsToTypeNameTheRecomputation) {
  const int64_t memory = need_with_one_head(3);  // with recompute full
  RunConfig config = parsed(kSmallest, one_head({"train.recompute=none", "train.micro_batch_sequences=1"}));
  RunTarget target = target_of(2, memory, 2);
  const PlanTooLarge error = refusal_of(config, target);
  ASSERT_TRUE(error.fitting().more_ranks.has_value()) << error.hint();
  const FittingMesh& fitting = *error.fitting().more_ranks;
  const std::string words = fmt::format(" train.recompute={})", to_string(fitting.recompute));
  EXPECT_EQ(error.hint().find(words) != std::string::npos, fitting.recompute != Recompute::kNone)
      << error.hint();
  config.train.recompute = RecomputeChoice::kAuto;
  EXPECT_EQ(refusal_of(config, target).hint().find("train.recompute="), std::string::npos);
}

TEST(FittingMeshes, SometimesNoNumberOfRanksHelps) {
  const PlanTooLarge error = refusal_of(parsed(kSmallest), target_of(1, 1 << 20));
  EXPECT_FALSE(error.fitting().more_ranks.has_value());
  EXPECT_EQ(error.hint().rfind("no number of ranks up to 1024 helps: ", 0), 0u) << error.hint();
}

}  // namespace
}  // namespace ripstop
