// Whole runs on one rank: what the trainer counts and reports.
#include "train/run/trainer.h"

#include <gtest/gtest.h>

#include "data/token_dataset_writer.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"
#include "train/checkpoint/manifest.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

constexpr const char* kConfig = R"(
[run]
directory = "RUN"
device = "cpu"
[model]
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 2
max_position_embeddings = 16
[data]
directory = "DATA"
sequence_length = 16
pack = false
[train]
steps = 1
global_batch_sequences = 1
[optimizer]
learning_rate = 1e-2
[schedule]
kind = "constant"
warmup_steps = 0
[precision]
compute = "float32"
)";

class TrainerTest : public ::testing::Test {
 protected:
  // Equal examples, so that their order does not matter, and some whose targets the loader cuts off: their
  // separator alone is longer than a sequence.
  std::string make_data(const std::string& name, int64_t equal, int64_t without_targets) {
    const std::filesystem::path directory = scratch_.path() / name;
    std::filesystem::create_directories(directory);
    write_bytes(directory / "tokenizer.model", small_model());
    const Tokenizer tokenizer(small_model(), "small");
    TokenDatasetHeader header;
    header.vocabulary_size = tokenizer.vocabulary_size();
    header.tokenizer_sha256 = tokenizer.sha256();
    TokenDatasetWriter writer(directory / "train.h5", header);
    for (int64_t i = 0; i < equal; ++i)
      writer.add({.tokens = {1, 5, 6, 7, 8, 9, 10, 2}, .separator_begin = 4, .target_begin = 5});
    const TokenExample too_long{
        .tokens = std::vector<int32_t>(24, 3), .separator_begin = 1, .target_begin = 22};
    for (int64_t i = 0; i < without_targets; ++i) writer.add(too_long);
    writer.finish();
    return directory.string();
  }

  MetricsLog train(const std::string& run, const std::string& data, int64_t steps) {
    std::string text = kConfig;
    text.replace(text.find("RUN"), 3, (scratch_ / run).string());
    text.replace(text.find("DATA"), 4, data);
    text.replace(text.find("steps = 1"), 9, fmt::format("steps = {}", steps));
    Trainer trainer({.config = parse_run_config(text, "test"), .argv = {}, .say = {}, .stop_requested = {}},
                    world_);
    EXPECT_EQ(trainer.run(), ExitCode::kOk);
    return read_metrics(scratch_ / run / "metrics.jsonl");
  }

  MpiWorld world_;
  ScratchDirectory scratch_;
};

// AdamW's bias correction goes by updates. Counted by steps, every loss after the skipped step would differ.
TEST_F(TrainerTest, ASkippedStepIsNoUpdate) {
  const MetricsLog plain = train("plain", make_data("equal", 4, 0), 8);
  const MetricsLog skipping = train("skipping", make_data("mixed", 4, 1), 10);
  std::vector<double> expected, found;
  for (const StepMetrics& step : plain.steps) expected.push_back(step.loss);
  for (const StepMetrics& step : skipping.steps)
    if (step.grad_norm > 0) found.push_back(step.loss);
  ASSERT_EQ(skipping.steps.size(), 10U) << "two epochs of five sequences";
  ASSERT_EQ(expected.size(), 8U);
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(skipping.warnings.empty()) << "a step without targets is no failure";

  PosixIo io;
  const CheckpointState state =
      read_manifest(io, scratch_ / "skipping" / "checkpoints" / step_directory_name(10)).state;
  EXPECT_EQ(state.step, 10);
  EXPECT_EQ(state.updates, 8);
}

TEST_F(TrainerTest, UtilizationIsMeasuredAgainstThePeak) {
  const MetricsLog log = train("run", make_data("equal", 4, 0), 3);
  const StartEvent& start = log.starts.at(0);
  ASSERT_TRUE(start.peak_flops_per_second);
  EXPECT_GT(*start.peak_flops_per_second, 1e8);
  EXPECT_EQ(start.peak_flops_source, "measured: linear in float32 on all ranks at once");
  for (const StepMetrics& step : log.steps) {
    ASSERT_TRUE(step.model_flops_utilization && step.model_flops_utilization_full_attention);
    const double expected = start.flops_per_token * step.tokens_per_second / *start.peak_flops_per_second;
    EXPECT_NEAR(*step.model_flops_utilization, expected, 1e-9 * expected);
    EXPECT_GT(*step.model_flops_utilization_full_attention, *step.model_flops_utilization);
    EXPECT_LT(*step.model_flops_utilization_full_attention, 1);
  }
}

}  // namespace
}  // namespace ripstop
