// Whole runs on one rank: counts, reports and ends.
#include "train/run/trainer.h"

#include <numeric>
#include <vector>

#include "tests/train/run/full_disk.h"

namespace ripstop {
namespace {

std::vector<int64_t> first_steps(int64_t count) {
  std::vector<int64_t> result(static_cast<size_t>(count));
  std::iota(result.begin(), result.end(), int64_t{1});
  return result;
}

using TrainerTest = SmallRuns;

// AdamW's bias correction counts updates. Counting steps would change every loss after the skipped step.
TEST_F(TrainerTest, ASkippedStepIsNoUpdate) {
  EXPECT_EQ(train(config("plain", make_data("equal", 4), {"train.steps=8"})), ExitCode::kOk);
  EXPECT_EQ(train(config("skipping", make_data("mixed", 4, 1), {"train.steps=10"})), ExitCode::kOk);
  const MetricsLog plain = metrics("plain"), skipping = metrics("skipping");
  std::vector<double> expected, found;
  for (const StepMetrics& step : plain.steps) expected.push_back(step.loss);
  for (const StepMetrics& step : skipping.steps)
    if (step.grad_norm > 0) found.push_back(step.loss);
  ASSERT_EQ(skipping.steps.size(), 10U) << "two epochs of five sequences";
  ASSERT_EQ(expected.size(), 8U);
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(skipping.warnings.empty()) << "a step without targets is no failure";
  EXPECT_EQ(state("skipping", 10).step, 10);
  EXPECT_EQ(state("skipping", 10).updates, 8);
}

TEST_F(TrainerTest, UtilizationIsMeasuredAgainstThePeak) {
  EXPECT_EQ(train(config("run", make_data("equal", 4), {"train.steps=3"})), ExitCode::kOk);
  const MetricsLog log = metrics("run");
  const StartEvent& start = log.starts.at(0);
  if (!start.peak_flops_per_second) {  // other tests keep the processors busy
    EXPECT_EQ(start.peak_flops_source, kNoCpuPeak) << "of a CPU, which plan must know";
    EXPECT_HAS(said(), "so there is no mfu");
    for (const StepMetrics& step : log.steps) EXPECT_FALSE(step.model_flops_utilization);
    return;
  }
  EXPECT_GT(*start.peak_flops_per_second, 1e8);
  EXPECT_HAS(start.peak_flops_source, "measured: linear in float32 on all ranks at once, best of ");
  for (const StepMetrics& step : log.steps) {
    ASSERT_TRUE(step.model_flops_utilization && step.model_flops_utilization_full_attention);
    const double expected = start.flops_per_token * step.tokens_per_second / *start.peak_flops_per_second;
    EXPECT_NEAR(*step.model_flops_utilization, expected, 1e-9 * expected);
    EXPECT_GT(*step.model_flops_utilization_full_attention, *step.model_flops_utilization);
    EXPECT_LT(*step.model_flops_utilization_full_attention, 1);
  }
}

// A run may resume with another recompute mode. Utilization leaves recomputation out.
TEST_F(TrainerTest, RecomputationChangesNoLoss) {
  const std::string data = make_data("equal", 4);
  const auto train_with = [&](const std::string& run, int64_t steps, const std::string& recompute) {
    EXPECT_EQ(
        train(config(run, data, {fmt::format("train.steps={}", steps), "train.recompute=" + recompute})),
        ExitCode::kOk);
  };
  train_with("none", 6, "none");
  EXPECT_EQ(said().find("recompute"), std::string::npos);
  train_with("changes", 2, "selective");
  EXPECT_HAS(said(), "recompute: selective (");
  train_with("changes", 4, "full");
  EXPECT_HAS(said(), "warning: train.recompute: \"selective\" -> \"full\"");
  train_with("changes", 6, "auto");
  const MetricsLog expected = metrics("none"), found = metrics("changes");
  ASSERT_EQ(found.steps.size(), expected.steps.size());
  for (size_t s = 0; s < expected.steps.size(); ++s) {
    EXPECT_EQ(found.steps[s].loss, expected.steps[s].loss);
    EXPECT_EQ(found.steps[s].grad_norm, expected.steps[s].grad_norm);
  }
  ASSERT_EQ(found.starts.size(), 3U);
  const char* modes[] = {"selective", "full", "none"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.starts[i].recompute, modes[i]);
    EXPECT_EQ(found.starts[i].flops_per_token, expected.starts.at(0).flops_per_token);
  }
  const StepMetrics& last = found.steps[3];  // of kFull
  const StartEvent& start = found.starts[1];
  if (last.model_flops_utilization) {
    EXPECT_NEAR(*last.model_flops_utilization,
                start.flops_per_token * last.tokens_per_second / *start.peak_flops_per_second,
                1e-9 * *last.model_flops_utilization);
  }
}

// With a learning rate far too high, gradients become infinite after some steps.
class DivergingRuns : public SmallRuns {
 protected:
  void SetUp() override {
    data_ = make_data("data", 4);
    Io io;
    std::filesystem::copy(std::filesystem::path(data_) / "train.h5",
                          std::filesystem::path(data_) / "validation.h5");
    expect_error(refusal(config("long", data_, with_rate(200))), ExitCode::kNumerics, "in 3 steps in a row",
                 "begin a new run with a lower optimizer.learning_rate");
    const std::vector<StepMetrics> steps = metrics("long").steps;
    ASSERT_GE(steps.size(), 5U) << "some updates, then three without";
    updates_ = static_cast<int64_t>(steps.size()) - 3;
  }
  static std::vector<std::string> with_rate(int64_t steps, const std::string& more = "checkpoint.keep=1") {
    return {"optimizer.learning_rate=1000", fmt::format("train.steps={}", steps), more};
  }

  std::string data_;
  int64_t updates_ = 0;  ///< steps before the first skipped one
};

TEST_F(DivergingRuns, TheWeightsAfterTheLastUpdateAreSaved) {
  EXPECT_TRUE(std::filesystem::exists(checkpoint("long", updates_)));
  EXPECT_EQ(state("long", updates_).updates, updates_);
  EXPECT_EQ(metrics("long").ends.back().exit_code, 77);
}

TEST_F(DivergingRuns, ARunWhoseLastStepWasSkippedIsNotDone) {
  const int64_t steps = updates_ + 1;
  std::vector<std::string> overrides = with_rate(steps, "train.validate_every=1000");
  expect_error(refusal(config("short", data_, overrides)), ExitCode::kNumerics,
               fmt::format("no update after step {} of {}", updates_, steps),
               checkpoint("short", updates_).string() + " has the weights after the last update");
  EXPECT_FALSE(std::filesystem::exists(checkpoint("short", steps)))
      << "it would look like a run that is done";
  EXPECT_EQ(state("short", updates_).updates, updates_);
  EXPECT_FALSE(state("short", updates_).best);
  const MetricsLog log = metrics("short");
  EXPECT_TRUE(log.validations.empty());
  EXPECT_EQ(log.ends.back().exit_code, 77);
  EXPECT_EQ(log.ends.back().step, steps);
  // The next start makes that step again, and is still not done.
  EXPECT_EQ(refusal(config("short", data_, overrides)).code(), ExitCode::kNumerics);
  EXPECT_EQ(this->steps("short"), first_steps(steps));
}

// The older checkpoint stays in spite of checkpoint.keep: the weights may have gone wrong long before.
TEST_F(DivergingRuns, OlderCheckpointsStay) {
  ASSERT_GE(updates_, 2);
  ASSERT_EQ(train(config("kept", data_, with_rate(updates_ - 1))), ExitCode::kOk);
  EXPECT_EQ(refusal(config("kept", data_, with_rate(updates_ + 1))).code(), ExitCode::kNumerics);
  EXPECT_TRUE(std::filesystem::exists(checkpoint("kept", updates_ - 1)));
  EXPECT_TRUE(std::filesystem::exists(checkpoint("kept", updates_)));
}

TEST_F(TrainerTest, ARunWithoutATargetIsRefused) {
  const std::string data = make_data("data", 0, 4);
  const Error error = refusal(config("run", data));
  EXPECT_EQ(error.code(), ExitCode::kUsage);
  EXPECT_HAS(error.what(), "with data.sequence_length 16 none of the 4 examples of " + data + "/train.h5");
  // 21 tokens of separator, then two targets.
  EXPECT_HAS(error.hint(), "at least 22; from 23 on");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run"));
}

// Another tokenizer is refused, even without a validation: the run would store it.
TEST_F(TrainerTest, ATrainingSetOfAnotherTokenizerIsRefused) {
  const std::string data = make_data("data", 4);
  std::filesystem::remove(std::filesystem::path(data) / "train.h5");
  write_examples(std::filesystem::path(data) / "train.h5", 4, 0, std::string(64, 'a'));
  expect_error(refusal(config("run", data)), ExitCode::kInputData,
               "train.h5 was made with another tokenizer");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run"));
}

TEST_F(TrainerTest, AValidationSetWithoutATargetIsNotValidated) {
  const std::string data = make_data("data", 4);
  write_examples(std::filesystem::path(data) / "validation.h5", 0, 3);
  EXPECT_EQ(train(config("run", data, {"train.validate_every=1"})), ExitCode::kOk);
  EXPECT_TRUE(metrics("run").validations.empty());
  EXPECT_HAS(said(), "no example of " + data + "/validation.h5 keeps a token whose prediction counts");
}

TEST_F(TrainerTest, AStopBeforeTheFirstStepWritesNothing) {
  const RunConfig config = this->config("run", make_data("data", 4), {"train.steps=3"});
  EXPECT_EQ(train(config, [] { return true; }), ExitCode::kRequeue);
  EXPECT_HAS(said(), "stopped on a signal before the first step: nothing was trained and nothing is lost");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run"));
  // A later signal, during the start of a resumed run.
  EXPECT_EQ(train(this->config("run", config.data.directory)), ExitCode::kOk);
  const std::string before = read_bytes(scratch_ / "run" / "metrics.jsonl");
  int asked = 0;
  EXPECT_EQ(train(config, [&] { return ++asked > 2; }), ExitCode::kRequeue);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(read_bytes(scratch_ / "run" / "metrics.jsonl"), before);
  EXPECT_EQ(train(config), ExitCode::kOk);
  EXPECT_EQ(steps("run"), first_steps(3));
}

// Counting a million epochs takes hours, unless the stop request ends it.
TEST_F(TrainerTest, AStopEndsTheCountOfEpochs) {
  std::string text = kConfig;
  text.replace(text.find("steps = 1"), 9, "epochs = 1000000");
  text.replace(text.find("RUN"), 3, (scratch_ / "run").string());
  text.replace(text.find("DATA"), 4, make_data("data", 4000));
  int asked = 0;
  EXPECT_EQ(train(parse_run_config(text, "test", std::vector<std::string>{"data.pack=true"}),
                  [&] { return ++asked > 3; }),
            ExitCode::kRequeue);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run"));
}

// The step would take minutes on any machine.
TEST_F(TrainerTest, AStopDoesNotWaitForALongStep) {
  const std::string data = make_data("data", 4);
  const std::vector<std::string> overrides = {
      "model.hidden_size=64", "model.intermediate_size=512", "model.num_hidden_layers=4",
      "train.global_batch_sequences=1048576", "train.micro_batch_sequences=64"};
  int asked = 0;
  EXPECT_EQ(train(config("long", data, overrides), [&] { return ++asked > 3; }), ExitCode::kRequeue);
  EXPECT_EQ(asked, 4) << "three times in the start, and in the first vote";
  EXPECT_HAS(said(), "stopped on a signal in step 1, which is made again");
  EXPECT_FALSE(std::filesystem::exists(checkpoint("long", 0)));
  EXPECT_TRUE(steps("long").empty());
}

TEST_F(FullDiskRuns, LinesOfTheLogWaitForRoom) {
  fill_until_lines_wait();
  EXPECT_EQ(train(ten_steps()), ExitCode::kOk);
  EXPECT_EQ(steps("run"), first_steps(10));
  EXPECT_HAS(said(), "training goes on, and the lines wait in memory");
  EXPECT_HAS(said(), "metrics.jsonl is written again and lacks no line");
}

// `sed -i` puts another file at the path; after a removal there is none.
TEST_F(FullDiskRuns, AReplacedOrRemovedLogLosesNoLine) {
  const std::filesystem::path log = scratch_ / "run" / "metrics.jsonl", other = scratch_ / "other";
  on_line_ = [&](const std::string& line) {
    if (line.starts_with("step 3/")) {
      std::filesystem::copy_file(log, other);
      std::filesystem::rename(other, log);
    }
  };
  EXPECT_EQ(train(ten_steps()), ExitCode::kOk);
  EXPECT_EQ(steps("run"), first_steps(10));
  EXPECT_HAS(said(), "warning: " + log.string() + " was replaced: the log goes on in the file");
  on_line_ = [&](const std::string& line) {
    if (line.starts_with("step 12/")) std::filesystem::remove(log);
  };
  EXPECT_EQ(train(ten_steps({"train.steps=15"})), ExitCode::kOk);
  EXPECT_EQ(steps("run"), first_steps(15));
  EXPECT_HAS(said(), "was removed: the log goes on in a new file");
}

TEST_F(FullDiskRuns, AnEndIsWrittenAfterAnyError) {
  on_line_ = [](const std::string& line) {
    if (line.starts_with("step 3/")) throw std::bad_alloc();
  };
  EXPECT_EQ(refusal(ten_steps()).code(), ExitCode::kResources);
  EXPECT_EQ(metrics("run").ends.at(0).exit_code, 78);
}

// The line of the checkpoint still fits, the `end` does not.
TEST_F(FullDiskRuns, AnEndThatCannotBeWrittenIsAFailure) {
  on_line_ = [this](const std::string& line) {
    if (line.starts_with("checkpoint "))
      disk_ =
          std::make_unique<FullDisk>(std::filesystem::file_size(scratch_ / "run" / "metrics.jsonl") + 400);
  };
  EXPECT_EQ(refusal(ten_steps()).code(), ExitCode::kStorage);
  disk_.reset();
  EXPECT_EQ(steps("run"), first_steps(10));
  EXPECT_EQ(metrics("run").checkpoints.size(), 1U);
  EXPECT_TRUE(metrics("run").ends.empty());
  on_line_ = {};
  EXPECT_EQ(train(ten_steps()), ExitCode::kOk);
  EXPECT_EQ(metrics("run").ends.size(), 1U);
}

// The saves of steps 4, 6 and 8 fail.
TEST_F(FullDiskRuns, AFullDiskSaysFromWhichStepToGoOn) {
  const RunConfig config = ten_steps({"checkpoint.every_steps=2", "checkpoint.asynchronous=false"});
  fill_until(10);
  const Error error = refusal(config);
  EXPECT_EQ(error.code(), ExitCode::kStorage) << error.what();
  EXPECT_HAS(error.hint(), "the same command then goes on from step 2");
  EXPECT_EQ(error.step(), 8);
  disk_.reset();
  on_line_ = {};
  EXPECT_EQ(train(config), ExitCode::kOk);
  EXPECT_HAS(said(), "at step 2 of 10");
  EXPECT_EQ(steps("run"), first_steps(10));
}

}  // namespace
}  // namespace ripstop
