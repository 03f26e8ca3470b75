#include "train/plan/run_length.h"

#include <gtest/gtest.h>

#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

// length_lines as "name: text", a line each.
std::string text_of(const RunConfig& config, const RunLength& length) {
  std::string text;
  for (const LengthLine& line : length_lines(config, length)) text += line.name + ": " + line.text + "\n";
  return text;
}

RunLength length_of_four_epochs() {
  RunLength length;
  SetData set{
      {.examples = 786, .cut_documents = 402, .cut_tokens = 50, .epoch_sequences = 82, .epoch_tokens = 150}};
  set.epochs = 4;
  length.data = TrainingData{{set}, {set}};
  length.data->steps = 41;
  length.data->tokens = 600;
  length.steps = 41;
  length.step_tokens = 600 / 41.0;
  length.checkpoint_bytes = 1 << 20;
  length.kept_checkpoints = 3;
  return length;
}

TEST(RunLengthTest, EveryLineThatIsKnown) {
  const RunConfig config = parsed(kSmallest, {"train.epochs=4"});
  RunLength length = length_of_four_epochs();
  EXPECT_EQ(text_of(config, length),
            "data: 786 examples, 402 documents cut to 256 tokens, 25% of all tokens are left out\n"
            "epoch: 82 sequences, 10.25 steps, 150 tokens\n"
            "run: 4 epochs, 41 steps, 600 tokens\n"
            "schedule: cosine: down to 0 of the rate after step 41\n"
            "checkpoint: 1.0 MiB; checkpoint.keep + 1 = 4 of them take 4.0 MiB\n");
  EXPECT_FALSE(length.seconds().has_value());
  length.speed = RunSpeed{.tokens_per_second = 2, .tokens_seen = 200, .source = "measured"};
  EXPECT_EQ(length.seconds(), 200);
  EXPECT_HAS(text_of(config, length), "time: 3m20s left at 2 tok/s, 7.32 s a step, measured\n");
}

TEST(RunLengthTest, ValidationsThatBeginOrEndARunAreSaid) {
  const auto line = [](const std::vector<std::string>& overrides) {
    for (const LengthLine& each : length_lines(parsed(kSmallest, overrides), length_of_four_epochs()))
      if (each.name == "validation") return each.text;
    return std::string();
  };
  EXPECT_EQ(line({"train.validate_every=5"}), "");
  EXPECT_EQ(line({"train.validate_at_start=true"}), "before step 1");
  EXPECT_EQ(line({"train.validate_at_start=true", "train.validate_every=5"}),
            "before step 1, every 5 steps and after the last");
  EXPECT_EQ(line({"train.stop_after_validations=3", "train.validate_every=5"}),
            "every 5 steps and after the last; training ends after 3 in a row without a better loss");
}

TEST(RunLengthTest, TheScheduleIsThatOfTheSteps) {
  const auto line = [](std::vector<std::string> overrides) {
    overrides.emplace_back("schedule.warmup_steps=3");
    for (const LengthLine& each : length_lines(parsed(kSmallest, overrides), length_of_four_epochs()))
      if (each.name == "schedule") return each.text;
    return std::string();
  };
  EXPECT_EQ(line({"schedule.kind=constant"}), "constant: up to step 3");
  EXPECT_EQ(line({"schedule.kind=linear", "schedule.minimum_ratio=0"}),
            "linear: up to step 3, down to 0 of the rate after step 41");
  EXPECT_EQ(line({"schedule.kind=wsd", "schedule.decay=1-sqrt", "schedule.decay_ratio=0.2",
                  "schedule.minimum_ratio=0.1"}),
            "wsd: up to step 3, constant to step 34, then 1-sqrt down to 0.1 of the rate after step 41");
  EXPECT_EQ(line({"schedule.kind=wsd", "schedule.decay_ratio=0.01"}),
            "wsd: up to step 3, constant to step 41");
}

TEST(RunLengthTest, WhatIsCutIsSaidExactly) {
  const RunConfig config = parsed(kSmallest, {"train.epochs=1", "checkpoint.keep=0"});
  RunLength length = length_of_four_epochs();
  SetData& set = length.data->sets.front();
  set.cut_documents = 1;
  set.cut_summaries = 2;
  EXPECT_HAS(text_of(config, length),
             "data: 786 examples, 1 document cut to 256 tokens, 2 summaries longer than "
             "data.sequence_length 256 lose the end, 25% of");
  length.kept_checkpoints = 0;
  EXPECT_HAS(text_of(config, length), "checkpoint: 1.0 MiB; checkpoint.keep = 0 keeps all of them\n");
  length.kept_checkpoints = 4;
  EXPECT_HAS(text_of(parsed(kSmallest), length), "checkpoint.keep + the best + 1 = 5 of them take 5.0 MiB\n");
  set.cut_documents = set.cut_summaries = set.cut_tokens = 0;
  EXPECT_HAS(text_of(config, length), "data: 786 examples, none is cut\n");
}

TEST(RunLengthTest, WithoutADataSetNothingIsInvented) {
  const ResolvedRun run =
      resolve_run(parsed(kSmallest), run_target(1, DeviceKind::kCpu, std::nullopt, 32000));
  const RunLength steps = run_length(parsed(kSmallest), run, std::nullopt);
  EXPECT_EQ(steps.steps, 100);
  EXPECT_FALSE(steps.data.has_value());
  // Master weights and two moments, float32 each, with padding.
  EXPECT_GE(steps.checkpoint_bytes, 12 * parameter_count(run.model));
  EXPECT_LT(steps.checkpoint_bytes, 12.2 * static_cast<double>(parameter_count(run.model)));
  ResolvedRun rounded = run;
  rounded.step.adamw.moments = DType::kBFloat16;
  EXPECT_EQ(run_length(parsed(kSmallest), rounded, std::nullopt).checkpoint_bytes,
            steps.checkpoint_bytes * 2 / 3);
  EXPECT_EQ(text_of(parsed(kSmallest), steps).rfind("run: 100 steps\nschedule: ", 0), 0u);
  const RunConfig epochs = parsed(kSmallest, {"train.epochs=2"});
  EXPECT_EQ(text_of(epochs, run_length(epochs, run, std::nullopt)).rfind("checkpoint: ", 0), 0u);
}

}  // namespace
}  // namespace ripstop
