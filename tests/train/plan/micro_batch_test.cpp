#include "train/plan/micro_batch.h"

#include <gtest/gtest.h>

#include "model/core/rounding.h"
#include "tests/train/config/small_config.h"
#include "train/plan/fitting_meshes.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

RunConfig config_of(int64_t batch, int64_t length) {
  return parsed(kSmallest, {fmt::format("train.global_batch_sequences={}", batch),
                            fmt::format("data.sequence_length={}", length), "model.num_hidden_layers=1",
                            "model.vocab_size=300"});
}

RunTarget target(DeviceKind device, std::optional<int64_t> memory_bytes = std::nullopt) {
  return run_target(1, device, memory_bytes, 300);
}

// The sizes by their definition: tries each size.
std::vector<int64_t> all_sizes(int64_t share, int64_t most, int64_t length, int64_t tensor) {
  std::vector<int64_t> sizes;
  for (int64_t b = most; b >= 1; --b)
    if (b * length % tensor == 0 && divide_up(share, divide_up(share, b)) == b) sizes.push_back(b);
  for (int64_t b = most; sizes.empty() && b >= 1; --b)
    if (b * length % tensor == 0) sizes.push_back(b);
  return sizes;
}

// The plan walks through all tokens of a micro-batch: a start must not take hours.
TEST(MicroBatch, HasNoMoreTokensThanAPlanCanWalk) {
  RunConfig config = config_of(1 << 20, 256);
  EXPECT_EQ(micro_batches_to_try(config, target(DeviceKind::kCuda), MeshSizes{1, 1, 1}, 1).front(), 1 << 16);
  config.train.micro_batch_sequences = 1 << 17;
  expect_error([&] { resolve_run(config, target(DeviceKind::kCuda)); }, ExitCode::kUsage,
               "a micro-batch of 33554432 tokens is too large");
}

TEST(MicroBatch, SizesAreThoseThatComputeNoEmptyRowMore) {
  for (const int64_t batch : {1, 2, 7, 8, 60, 97, 1000})
    for (const int64_t length : {16, 25})
      for (const MeshSizes& mesh : {MeshSizes{1, 1, 1}, MeshSizes{1, 3, 2}, MeshSizes{2, 2, 6}}) {
        const RunConfig config = config_of(batch, length);
        const int64_t share = divide_up(batch, mesh.replicate * mesh.fsdp);
        EXPECT_EQ(micro_batches_to_try(config, target(DeviceKind::kCuda), mesh, 1),
                  all_sizes(share, share, length, mesh.tensor))
            << batch << " " << length << " " << mesh.to_text();
        EXPECT_EQ(micro_batches_to_try(config, target(DeviceKind::kCpu), mesh, 1),
                  all_sizes(share, std::min(share, 4096 / length), length, mesh.tensor));
      }
}

TEST(MicroBatch, TheLargestThatFitsIsFound) {
  const RunConfig config = config_of(97, 16);
  RunTarget small = target(DeviceKind::kCuda);
  ResolvedRun run = resolve_run(config, small);
  const std::vector<int64_t> sizes = micro_batches_to_try(config, small, run.mesh, 1);
  ASSERT_GT(sizes.size(), 8U);
  EXPECT_EQ(run.step.sharding.sequence_count, 97) << "no limit is known";
  for (const int64_t size : sizes) {
    ASSERT_TRUE(plan_with_micro_batch(config, target(DeviceKind::kCuda), size, run));
    small.device_memory_bytes = run.memory().total() + run.library_bytes;
    EXPECT_TRUE(plan_with_least_recompute(config, small, {Recompute::kNone}, sizes, run));
    EXPECT_EQ(run.step.sharding.sequence_count, size);
    EXPECT_EQ(run.memory().total() + run.library_bytes, *small.device_memory_bytes);
  }
  small.device_memory_bytes = 1;
  EXPECT_FALSE(plan_with_least_recompute(config, small, {Recompute::kNone}, sizes, run));
  EXPECT_EQ(run.step.sharding.sequence_count, 1) << "the error tells what even that needs";
}

// A model of so many layers that activations take most of the memory.
RunConfig deep_config(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides{"train.global_batch_sequences=8", "data.sequence_length=64",
                                     "model.num_hidden_layers=24", "model.vocab_size=300"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return parsed(kSmallest, overrides);
}

int64_t need_of(const std::string& recompute, int64_t micro_batch) {
  const RunConfig config = deep_config(
      {"train.recompute=" + recompute, fmt::format("train.micro_batch_sequences={}", micro_batch)});
  const ResolvedRun run = resolve_run(config, target(DeviceKind::kCuda));
  EXPECT_EQ(to_string(run.step.sharding.recompute), recompute);
  return run.memory().total() + run.library_bytes;
}

// Less recomputation with a smaller micro-batch comes before more with a larger one.
TEST(MicroBatch, AutoRecomputesAsLittleAsFits) {
  const auto chosen = [](int64_t memory, const std::string& more = "train.recompute=auto") {
    const ResolvedRun run = resolve_run(deep_config({more}), target(DeviceKind::kCuda, memory));
    EXPECT_LE(run.memory().total() + run.library_bytes, memory);
    return fmt::format("{} {}", to_string(run.step.sharding.recompute), run.step.sharding.sequence_count);
  };
  const int64_t none = need_of("none", 1), selective = need_of("selective", 1), full = need_of("full", 1);
  ASSERT_LT(full, selective);
  ASSERT_LT(selective, none);
  EXPECT_EQ(chosen(need_of("none", 8)), "none 8");
  EXPECT_EQ(chosen(need_of("none", 8) - 1), "none 4");
  EXPECT_EQ(chosen(none), "none 1");
  ASSERT_GT(none - 1, need_of("selective", 2)) << "a larger micro-batch fits with recomputation";
  EXPECT_EQ(chosen(none - 1), "selective 2");
  EXPECT_EQ(chosen(selective), "selective 1");
  ASSERT_GT(selective - 1, need_of("full", 3));
  ASSERT_LT(selective - 1, need_of("full", 4));
  EXPECT_EQ(chosen(selective - 1), "full 3");
  EXPECT_EQ(chosen(full), "full 1");
  EXPECT_THROW(chosen(full - 1), PlanTooLarge);
  // A given micro-batch and a given mode are kept.
  EXPECT_EQ(chosen(need_of("selective", 4), "train.micro_batch_sequences=4"), "selective 4");
  EXPECT_EQ(chosen(none, "train.recompute=full"), "full 4");
  EXPECT_THROW(chosen(none - 1, "train.recompute=none"), PlanTooLarge);
}

// Larger chunks of the head take only unused memory, and never make the micro-batch smaller.
TEST(MicroBatch, TheHeadsChunksTakeWhatIsLeft) {
  const RunConfig config = parsed(kSmallest, {"train.global_batch_sequences=128", "data.sequence_length=64",
                                              "model.num_hidden_layers=1", "model.vocab_size=5000"});
  ResolvedRun run = resolve_run(config, target(DeviceKind::kCuda));
  EXPECT_EQ(run.step.sharding.head_chunk_rows, 1024) << "no memory is known";
  EXPECT_EQ(resolve_run(config, target(DeviceKind::kCpu, int64_t{1} << 40)).step.sharding.head_chunk_rows,
            1024);
  const auto need = [&](int64_t chunk) {
    run.step.sharding.head_chunk_rows = chunk;
    run.plan = plan_fullest(run.request(DeviceKind::kCuda));
    return run.memory().total() + run.library_bytes;
  };
  const auto chosen = [&](int64_t memory, const RunConfig& of) {
    const ResolvedRun resolved = resolve_run(of, target(DeviceKind::kCuda, memory));
    EXPECT_LE(resolved.memory().total() + resolved.library_bytes, memory);
    EXPECT_EQ(resolved.micro_batches, 1);
    return resolved.step.sharding.head_chunk_rows;
  };
  EXPECT_EQ(chosen(need(1024), config), 1024);
  for (const int64_t chunk : {2048, 4096, 8192}) {
    ASSERT_GT(need(chunk), need(chunk / 2));
    EXPECT_EQ(chosen(need(chunk), config), chunk);
    EXPECT_EQ(chosen(need(chunk) - 1, config), chunk / 2);
  }
  RunConfig few = config;
  few.train.global_batch_sequences = 33;
  EXPECT_EQ(chosen(need(8192), few), 4096) << "of which it uses 2,112";
}

// Fast for the largest batch, too: trying each size would take many minutes.
TEST(MicroBatch, ALargeBatchIsResolvedAtOnce) {
  const RunConfig config = config_of(1 << 20, 16);
  const ResolvedRun run = resolve_run(config, target(DeviceKind::kCuda, int64_t{4} << 30));
  EXPECT_GT(run.micro_batches, 100);
  EXPECT_EQ(run.micro_batches, divide_up(1 << 20, run.step.sharding.sequence_count));
  EXPECT_EQ(resolve_run(config_of(1 << 20, 25), target(DeviceKind::kCpu)).micro_batches,
            divide_up(1 << 20, 4096 / 25));
}

std::string text_of(int64_t batch, int64_t ranks, const std::string& micro_batch) {
  const RunConfig config =
      parsed(kSmallest, {fmt::format("train.global_batch_sequences={}", batch), "data.sequence_length=16",
                         "model.num_hidden_layers=1", "model.vocab_size=300",
                         "train.micro_batch_sequences=" + micro_batch});
  return micro_batches_text(config,
                            resolve_run(config, run_target(ranks, DeviceKind::kCpu, std::nullopt, 300)));
}

// idle_text names the idle ranks and the batch that would keep them busy.
TEST(MicroBatch, TheTextSaysWhoIsIdle) {
  EXPECT_EQ(text_of(8, 2, "auto"), "1 micro-batch of 4 on each of 2 data ranks");
  EXPECT_EQ(text_of(1, 2, "1"),
            "1 micro-batch of 1 on 1 of 2 data ranks, 50.0% idle: data rank 1 has no sequence, "
            "train.global_batch_sequences=2 takes the same time");
  EXPECT_EQ(text_of(1, 4, "1"),
            "1 micro-batch of 1 on 1 of 4 data ranks, 75.0% idle: data ranks 1 to 3 have no sequence, "
            "train.global_batch_sequences=4 takes the same time");
  EXPECT_EQ(text_of(7, 4, "2"),
            "1 micro-batch of 2 on each of 4 data ranks, 12.5% idle: data rank 3 has 1 sequence less, "
            "train.global_batch_sequences=8 takes the same time");
  EXPECT_EQ(text_of(6, 2, "2"),
            "2 micro-batches of 2 on each of 2 data ranks, 25.0% idle: micro-batches are not full, "
            "train.global_batch_sequences=8 takes the same time");
  // The named batch does keep all ranks busy.
  EXPECT_EQ(text_of(8, 4, "2"), "1 micro-batch of 2 on each of 4 data ranks");
}

// The note is about bfloat16 on this processor, and names the setting that is computed then.
TEST(ResolvedRun, SaysThatBfloat16IsComputedInFloat32) {
  RunTarget slow = target(DeviceKind::kCpu);
  slow.fast_bfloat16 = false;
  const ResolvedRun run = resolve_run(config_of(8, 16), slow);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_EQ(
      run.notes[0].rfind(
          "precision.compute: this processor has no products of bfloat16, so it computes in float32", 0),
      0u)
      << run.notes[0];
  EXPECT_EQ(run.step.sharding.compute, DType::kFloat32);
}

TEST(ResolvedRun, SaysWhichIdsAreNeverTrained) {
  const RunConfig config = config_of(8, 16);
  EXPECT_TRUE(resolve_run(config, target(DeviceKind::kCuda)).notes.empty());
  const ResolvedRun larger = resolve_run(config, run_target(1, DeviceKind::kCuda, std::nullopt, 256));
  ASSERT_EQ(larger.notes.size(), 1u);
  EXPECT_EQ(
      larger.notes[0],
      "model.vocab_size is 300, the data set's tokenizer has 256 pieces: the last 44 ids never occur in the "
      "data, so their embeddings are never trained; a new run with model.vocab_size=256 leaves them out");
}

}  // namespace
}  // namespace ripstop
