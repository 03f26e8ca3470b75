// Whole runs on one rank that are resumed with changes, some of which are refused.
#include "tests/train/run/small_runs.h"

namespace ripstop {
namespace {

class ResumedRuns : public SmallRuns {
 protected:
  void SetUp() override {
    data_ = make_data("data", 4);
    ASSERT_EQ(train(first("run")), ExitCode::kOk);
  }
  RunConfig first(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all = {"train.steps=4", "schedule.kind=cosine"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return config(run, data_, all);
  }
  /// A refused start changes no file of the run.
  Error expect_refused(const std::vector<std::string>& overrides, ExitCode code, const std::string& what) {
    const std::string before = read_bytes(scratch_ / "run" / "metrics.jsonl");
    const Error error = refusal(first("run", overrides));
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_HAS(error.what(), what);
    EXPECT_EQ(read_bytes(scratch_ / "run" / "metrics.jsonl"), before);
    return error;
  }
  void forget_config() { std::filesystem::remove(scratch_ / "run" / "config.toml"); }

  std::string data_;
};

// The rate is so small that the loss stays equal. The second start knows what the first one saw.
TEST_F(ResumedRuns, AStallIsNotToldAgain) {
  const auto stalls = [&](const std::string& steps) {
    EXPECT_EQ(train(config("stalled", data_, {"train.steps=" + steps, "optimizer.learning_rate=1e-30"})),
              ExitCode::kOk);
    std::vector<int64_t> told;
    for (const WarningEvent& warning : metrics("stalled").warnings)
      if (warning.text.starts_with("the loss has not fallen")) told.push_back(warning.step);
    return told;
  };
  EXPECT_EQ(stalls("520"), std::vector<int64_t>{512});
  EXPECT_EQ(stalls("1100"), std::vector<int64_t>{512});
}

// The manifest has the config, too: without config.toml the run still refuses another config.
TEST_F(ResumedRuns, TheManifestProtectsARunWithoutItsConfig) {
  forget_config();
  const std::string directory = checkpoint("run", 4).string();
  expect_refused({"optimizer.learning_rate=5e-2", "optimizer.weight_decay=0.5"}, ExitCode::kUsage,
                 directory +
                     " was begun with another config: optimizer.learning_rate: 0.01 -> 0.05, "
                     "optimizer.weight_decay: 0.1 -> 0.5");
  // Changes of the model that no shape shows.
  expect_refused({"model.rope_theta=500000", "model.rms_norm_eps=1e-3"}, ExitCode::kUsage,
                 "model.rms_norm_eps: 1e-05 -> 0.001, model.rope_theta: 10000.0 -> 500000.0");
  // Reported as a change of the config, and not as another packing.
  expect_refused({"run.seed=2"}, ExitCode::kUsage, "run.seed: 1 -> 2, data.shuffle_seed: 1 -> 2");
  EXPECT_EQ(train(first("run", {"train.steps=5"})), ExitCode::kOk);
  EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST_F(ResumedRuns, CheckpointsOfAnotherRunAreRefused) {
  ASSERT_EQ(train(first("other", {"optimizer.learning_rate=5e-2"})), ExitCode::kOk);
  std::filesystem::remove_all(scratch_ / "run" / "checkpoints");
  std::filesystem::copy(scratch_ / "other" / "checkpoints", scratch_ / "run" / "checkpoints",
                        std::filesystem::copy_options::recursive);
  expect_refused({"train.steps=6"}, ExitCode::kUsage, "optimizer.learning_rate: 0.05 -> 0.01");
}

TEST_F(ResumedRuns, WhatDoesNotShapeTheWeightsMayChange) {
  std::filesystem::copy(std::filesystem::path(data_) / "train.h5",
                        std::filesystem::path(data_) / "validation.h5");
  EXPECT_EQ(train(first("run", {"train.steps=6", "train.validate_every=2", "generation.max_new_tokens=3",
                                "generation.validate_examples=0", "train.recompute=full"})),
            ExitCode::kOk);
  EXPECT_EQ(metrics("run").validations.size(), 2U) << "that of step 4 was due, too";
  EXPECT_HAS(said(), "warning: train.validate_every: 0 -> 2");
  EXPECT_HAS(said(), "warning: ROUGE of validations is measured with other [generation] settings");
  // Without validation again, the state keeps the set to which the best score belongs.
  EXPECT_EQ(train(first("run", {"train.steps=7"})), ExitCode::kOk);
  EXPECT_NE(state("run", 7).validation_content_hash, "none");
}

TEST_F(ResumedRuns, Bfloat16MomentsGoOnToTheBit) {
  const std::vector<std::string> rounded = {"optimizer.moments=bfloat16", "schedule.kind=constant"};
  const auto with_steps = [&](const char* steps) {
    std::vector<std::string> all = rounded;
    all.push_back(std::string("train.steps=") + steps);
    return all;
  };
  ASSERT_EQ(train(first("unbroken", with_steps("7"))), ExitCode::kOk);
  ASSERT_EQ(train(first("broken", with_steps("4"))), ExitCode::kOk);
  ASSERT_EQ(train(first("broken", with_steps("7"))), ExitCode::kOk);
  const auto losses = [&](const std::string& run) {
    std::vector<double> values;
    for (const StepMetrics& step : metrics(run).steps) values.push_back(step.loss);
    return values;
  };
  EXPECT_EQ(losses("broken"), losses("unbroken"));
  EXPECT_EQ(read_bytes(checkpoint("broken", 7) / "rank_00000.h5"),
            read_bytes(checkpoint("unbroken", 7) / "rank_00000.h5"));
  ASSERT_EQ(train(first("exact", {"schedule.kind=constant", "train.steps=7"})), ExitCode::kOk);
  EXPECT_NE(losses("exact"), losses("unbroken")) << "the moments are not rounded";
}

// Another dtype of moments is refused, because it changes the weights.
TEST_F(ResumedRuns, TheDtypeOfTheMomentsStays) {
  expect_refused({"optimizer.moments=bfloat16", "train.steps=6"}, ExitCode::kUsage,
                 "optimizer.moments: \"float32\" -> \"bfloat16\"");
  ASSERT_EQ(train(first("rounded", {"optimizer.moments=bfloat16"})), ExitCode::kOk);
  expect_error(refusal(first("rounded", {"train.steps=6"})), ExitCode::kUsage,
               "optimizer.moments: \"bfloat16\" -> \"float32\"");
  // A new run may begin with the weights.
  EXPECT_EQ(
      train(first("new", {"optimizer.moments=bfloat16", "model.pretrained=" + (scratch_ / "run").string()})),
      ExitCode::kOk);
}

TEST_F(ResumedRuns, AnotherMicroBatchIsNoted) {
  EXPECT_EQ(train(first("run", {"train.steps=5", "train.micro_batch_sequences=1"})), ExitCode::kOk);
  EXPECT_HAS(said(), "not bit for bit");
  EXPECT_EQ(train(first("run", {"train.steps=6", "train.micro_batch_sequences=1"})), ExitCode::kOk);
  EXPECT_EQ(said().find("not bit for bit"), std::string::npos);
}

TEST_F(ResumedRuns, TheJumpOfTheRateIsSaid) {
  EXPECT_EQ(train(first("run", {"train.steps=40"})), ExitCode::kOk);
  const std::vector<StepMetrics> steps = metrics("run").steps;
  EXPECT_HAS(
      said(),
      fmt::format("warning: more steps stretch the schedule: the learning rate was {:.2e} in step 4 and is "
                  "{:.2e} in step 5",
                  steps[3].learning_rate, steps[4].learning_rate));
  EXPECT_GT(steps[4].learning_rate, 2 * steps[3].learning_rate);
}

}  // namespace
}  // namespace ripstop
