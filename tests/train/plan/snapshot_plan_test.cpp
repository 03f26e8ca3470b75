#include "train/plan/snapshot_plan.h"

#include <gtest/gtest.h>

#include "tests/train/config/small_config.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/plan/plan_text.h"
#include "train/plan/resolved_run.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

constexpr int64_t kMiB = int64_t{1} << 20;

RunConfig saving_config(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"model.vocab_size=3000", "checkpoint.every_steps=10"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parsed(kSmallest, all);
}
RunTarget target_of(int64_t ranks, DeviceKind device, std::optional<int64_t> memory = std::nullopt) {
  return run_target(ranks, device, memory, 3000);
}
int64_t whole_of(const ResolvedRun& run) {
  return checkpoint_bytes(parameter_table(run.model), run.mesh, run.step.adamw.moments);
}

TEST(SnapshotPlan, OnACpuTheCopiesArePartOfTheMemory) {
  const RunTarget target = target_of(1, DeviceKind::kCpu);
  const ResolvedRun run = resolve_run(saving_config(), target);
  EXPECT_EQ(run.snapshot.whole_bytes, whole_of(run));
  EXPECT_TRUE(run.snapshot.is_whole());
  EXPECT_EQ(run.memory()[MemoryCategory::kSnapshot], whole_of(run));
  const ResolvedRun waits = resolve_run(saving_config({"checkpoint.asynchronous=false"}), target);
  EXPECT_EQ(waits.memory()[MemoryCategory::kSnapshot], 0);
  EXPECT_EQ(waits.memory().total() + whole_of(run), run.memory().total());
}

TEST(SnapshotPlan, BesideAGpuTheyLieInHostMemory) {
  RunTarget target = target_of(1, DeviceKind::kCuda);
  target.host_memory_bytes = 20 * kMiB;
  const ResolvedRun run = resolve_run(saving_config(), target);
  EXPECT_TRUE(run.snapshot.beside_device);
  EXPECT_EQ(run.memory()[MemoryCategory::kSnapshot], 0);
  EXPECT_GT(run.snapshot.kept_bytes, 0);
  EXPECT_LE(run.snapshot.kept_bytes, 16 * kMiB) << "some is left to others";
  EXPECT_FALSE(run.snapshot.is_whole());
  EXPECT_HAS(plan_text(run, std::nullopt), "host memory");
  EXPECT_HAS(plan_text(run, std::nullopt), "in pieces: updates wait until these are written");
}

// Copies of "auto" size never make a mesh or micro-batch too large.
TEST(SnapshotPlan, TheyTakeWhatTheRestOfThePlanLeaves) {
  const RunConfig without = saving_config({"checkpoint.asynchronous=false"});
  const int64_t needed = resolve_run(without, target_of(1, DeviceKind::kCpu)).memory().total();
  for (const int64_t left : {int64_t{0}, 40 * kMiB}) {
    const RunTarget target = target_of(1, DeviceKind::kCpu, needed + left);
    const ResolvedRun run = resolve_run(saving_config(), target);
    EXPECT_EQ(run.step.sharding.sequence_count, resolve_run(without, target).step.sharding.sequence_count);
    EXPECT_EQ(run.step.sharding.recompute, Recompute::kNone);
    EXPECT_LE(run.memory().total(), needed + left);
    EXPECT_EQ(run.snapshot.kept_bytes > 0, left > 0);
    EXPECT_FALSE(run.snapshot.is_whole());
  }
}

TEST(SnapshotPlan, TheKeyLimitsThem) {
  const RunTarget target = target_of(1, DeviceKind::kCpu);
  const ResolvedRun none = resolve_run(saving_config({"checkpoint.snapshot_mib=0"}), target);
  EXPECT_EQ(none.snapshot.kept_bytes, 0);
  EXPECT_EQ(none.snapshot.whole_bytes, whole_of(none));
  const ResolvedRun some = resolve_run(saving_config({"checkpoint.snapshot_mib=30"}), target);
  EXPECT_GT(some.snapshot.kept_bytes, 0);
  EXPECT_LE(some.snapshot.kept_bytes, 30 * kMiB);
  const std::string fixed[] = {"train.micro_batch_sequences=8", "train.recompute=none"};
  const int64_t needed =
      resolve_run(saving_config({"checkpoint.asynchronous=false", fixed[0], fixed[1]}), target)
          .memory()
          .total();
  EXPECT_THROW(resolve_run(saving_config({"checkpoint.snapshot_mib=1000", fixed[0], fixed[1]}),
                           target_of(1, DeviceKind::kCpu, needed)),
               Error)
      << "asked for, and not there";
}

// Shards and replicas share the bytes among the ranks; the fullest counts.
TEST(SnapshotPlan, ARankCountsWhatItStores) {
  const auto plan_of = [](const char* mesh, const char* size) {
    return resolve_run(saving_config({fmt::format("mesh.{}={}", mesh, size)}),
                       target_of(2, DeviceKind::kCpu));
  };
  const ResolvedRun fsdp = plan_of("fsdp", "2");
  EXPECT_EQ(2 * fsdp.snapshot.whole_bytes, whole_of(fsdp));
  for (const char* axis : {"tensor", "replicate"}) {
    const ResolvedRun run = plan_of(axis, "2");
    int64_t sum = 0, most = 0;
    for (int64_t rank = 0; rank < 2; ++rank) {
      const int64_t bytes =
          kept_bytes(parameter_table(run.model), run.mesh, rank, DType::kFloat32, int64_t{1} << 40);
      sum += bytes;
      most = std::max(most, bytes);
    }
    EXPECT_EQ(sum, whole_of(run)) << axis;
    EXPECT_EQ(most, run.snapshot.whole_bytes) << axis;
  }
}

// The embedding has the size of the head, which has a norm, too.
TEST(SnapshotPlan, TheLastStageMayStoreTheMost) {
  ResolvedRun run = resolve_run(saving_config(), target_of(1, DeviceKind::kCpu));
  run.model.num_hidden_layers = 2;
  run.model.tie_word_embeddings = false;
  run.step.sharding.stage_layers = {1, 1};
  run.mesh = {.fsdp = 1, .pipeline = 2};
  const std::vector<UnitSpec> units = run.trained_table();
  limit_copies(run.snapshot, units, run.mesh, DType::kFloat32, int64_t{1} << 40);
  const int64_t last = kept_bytes(units, run.mesh, 1, DType::kFloat32, int64_t{1} << 40);
  EXPECT_GT(last, kept_bytes(units, run.mesh, 0, DType::kFloat32, int64_t{1} << 40));
  EXPECT_EQ(run.snapshot.whole_bytes, last);
  EXPECT_TRUE(run.snapshot.is_whole());
}

TEST(SnapshotPlan, OnlyIfASaveComesBeforeTheEnd) {
  EXPECT_TRUE(saves_while_training(saving_config()));
  EXPECT_FALSE(saves_while_training(saving_config({"checkpoint.asynchronous=false"})));
  EXPECT_FALSE(saves_while_training(saving_config({"checkpoint.every_steps=0"})));
  EXPECT_FALSE(saves_while_training(saving_config({"checkpoint.every_steps=100"}))) << "of 100 steps";
  const std::vector<std::string> best = {"checkpoint.every_steps=0", "train.validate_every=5"};
  EXPECT_TRUE(saves_while_training(saving_config(best)));
  EXPECT_FALSE(saves_while_training(saving_config({best[0], best[1], "checkpoint.keep_best=none"})));
}

}  // namespace
}  // namespace ripstop
