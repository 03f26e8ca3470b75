// Whole runs on one rank that validate: before step 1, and until validations bring no improvement.
#include <limits>
#include <map>

#include "tests/train/commands/small_dataset.h"
#include "tests/train/run/small_runs.h"

namespace ripstop {
namespace {

class ValidatedRuns : public SmallRuns {
 protected:
  /// Training and validation share some tokens. Validations improve while the run learns the frequencies of
  /// tokens, and get worse when it learns their order.
  void SetUp() override {
    data_ = make_data("data", 4);
    write_validation({1, 5, 6, 7, 8, 11, 9, 12});
  }
  void write_validation(const std::vector<int32_t>& tokens) const {
    const std::filesystem::path file = std::filesystem::path(data_) / "validation.h5";
    std::filesystem::remove(file);
    const Tokenizer tokenizer(small_model(), "small");
    const TokenDatasetHeader header = header_of(tokenizer);
    TokenDatasetWriter writer(file, header);
    const TargetSpan span{5, static_cast<int32_t>(tokens.size()), 1, 4};
    for (int i = 0; i < 3; ++i) writer.add({.tokens = tokens, .spans = {span}});
    writer.finish();
  }

  /// A run of 16 steps with a validation after each.
  RunConfig each_step(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all = {"train.steps=16",           "train.validate_every=1",
                                    "schedule.kind=cosine",     "log.every_steps=1",
                                    "checkpoint.every_steps=4", "checkpoint.keep=1",
                                    "schedule.warmup_steps=2",  "optimizer.learning_rate=3e-2"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return config(run, data_, all);
  }
  /// Trains until a stop is requested after step `after`.
  ExitCode train_until(int64_t after, const RunConfig& config) {
    bool stop = false;
    on_line_ = [&](const std::string& line) { stop |= line.starts_with(fmt::format("step {}/", after)); };
    const ExitCode code = train(config, [&] { return stop; });
    on_line_ = {};
    return code;
  }
  std::vector<int64_t> validated(const std::string& run) const {
    std::vector<int64_t> result;
    for (const ValidationEvent& validation : metrics(run).validations) result.push_back(validation.step);
    return result;
  }
  /// The first step at which `most` validations in a row had no better loss than an earlier one; 0: none.
  static int64_t expected_end(const std::vector<ValidationEvent>& validations, int64_t most) {
    double best = std::numeric_limits<double>::infinity();
    int64_t count = 0;
    for (const ValidationEvent& validation : validations) {
      count = validation.loss < best ? 0 : count + 1;
      best = std::min(best, validation.loss);
      if (count == most) return validation.step;
    }
    return 0;
  }
  /// Expects the second run to equal the first, up to its end.
  void expect_begins_alike(const std::string& whole, const std::string& part) const {
    const MetricsLog expected = metrics(whole), found = metrics(part);
    ASSERT_LE(found.steps.size(), expected.steps.size());
    for (size_t s = 0; s < found.steps.size(); ++s) {
      EXPECT_EQ(found.steps[s].step, expected.steps[s].step);
      EXPECT_EQ(found.steps[s].loss, expected.steps[s].loss);
      EXPECT_EQ(found.steps[s].learning_rate, expected.steps[s].learning_rate);
    }
    ASSERT_LE(found.validations.size(), expected.validations.size());
    for (size_t v = 0; v < found.validations.size(); ++v) {
      EXPECT_EQ(found.validations[v].step, expected.validations[v].step);
      EXPECT_EQ(found.validations[v].loss, expected.validations[v].loss);
      EXPECT_EQ(found.validations[v].best, expected.validations[v].best);
    }
  }

  std::string data_;
};

TEST_F(ValidatedRuns, TrainingEndsWhenValidationsBringNoImprovement) {
  ASSERT_EQ(train(each_step("whole")), ExitCode::kOk);
  const int64_t end = expected_end(metrics("whole").validations, 3);
  ASSERT_GE(end, 5) << "improvements, then three validations without one";
  ASSERT_LT(end, 16);
  EXPECT_EQ(metrics("whole").ends.back().reason, EndReason::kSteps);

  ASSERT_EQ(train(each_step("run", {"train.stop_after_validations=3"})), ExitCode::kOk);
  EXPECT_EQ(metrics("run").steps.back().step, end);
  EXPECT_EQ(validated("run").back(), end);
  expect_begins_alike("whole", "run");
  const EndEvent event = metrics("run").ends.back();
  EXPECT_EQ(event.reason, EndReason::kNoImprovement);
  EXPECT_EQ(event.exit_code, 0);
  EXPECT_EQ(event.step, end);
  const CheckpointState last = state("run", end);
  ASSERT_TRUE(last.best);
  EXPECT_EQ(last.best->step, end - 3);
  EXPECT_EQ(last.validations_since_best, 3);
  EXPECT_TRUE(std::filesystem::exists(checkpoint("run", end - 3))) << "the best is kept";
  EXPECT_HAS(said(), "; training ends after 3 in a row without a better loss\n");
  EXPECT_HAS(said(), "  3 of 3 without improvement\n");
  EXPECT_HAS(said(), fmt::format("training ends at step {} of 16: 3 validations in a row brought no better "
                                 "loss than {:.4f} of step {}; to train on, give "
                                 "train.stop_after_validations=0 or more than 3",
                                 end, last.best->value, end - 3));
}

// The rate is so small that no weight changes, so all scores are equal.
TEST_F(ValidatedRuns, AnEqualScoreIsNotTheBest) {
  const std::filesystem::path file = std::filesystem::path(data_) / "validation.h5";
  std::filesystem::remove(file);
  write_small_dataset(file, 0, 3);
  for (const std::string metric : {"loss", "rougeL"}) {
    ASSERT_EQ(train(config(metric, data_,
                           {"train.steps=6", "train.validate_every=1", "checkpoint.keep_best=" + metric,
                            "optimizer.learning_rate=1e-30", "generation.validate_examples=2",
                            "generation.max_new_tokens=4", "data.sequence_length=160",
                            "model.max_position_embeddings=160"})),
              ExitCode::kOk);
    const CheckpointState last = state(metric, 6);
    ASSERT_TRUE(last.best);
    EXPECT_EQ(last.best->step, 1) << metric;
    EXPECT_EQ(last.validations_since_best, 5) << metric;
    const std::vector<WarningEvent> warnings = metrics(metric).warnings;
    ASSERT_EQ(warnings.size(), 1U) << "once, at the third without an improvement";
    EXPECT_EQ(warnings[0].step, 4);
    EXPECT_EQ(warnings[0].text, fmt::format("the validation has not improved since step 1: {} {:.4f}", metric,
                                            last.best->value));
  }
}

TEST_F(ValidatedRuns, ARunThatEndedEarlyIsDoneUntilItIsToldToGoOn) {
  ASSERT_EQ(train(each_step("whole")), ExitCode::kOk);
  const std::vector<ValidationEvent> all = metrics("whole").validations;
  const int64_t end = expected_end(all, 2), later = expected_end(all, 4);
  ASSERT_GT(later, end);
  ASSERT_EQ(train(each_step("run", {"train.stop_after_validations=2"})), ExitCode::kOk);
  const auto files = [&] {
    std::map<std::string, std::filesystem::file_time_type> times;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch_ / "run/checkpoints"))
      times[entry.path().string()] = entry.last_write_time();
    return times;
  };
  const auto before = files();
  ASSERT_EQ(train(each_step("run", {"train.stop_after_validations=2"})), ExitCode::kOk);
  EXPECT_HAS(said(), fmt::format("was done already at step {} of 16: 2 validations in a row brought", end));
  EXPECT_EQ(said().find("give more train.steps"), std::string::npos) << said();
  EXPECT_EQ(files(), before);
  EXPECT_EQ(metrics("run").ends.back().reason, EndReason::kNoImprovement);
  EXPECT_EQ(metrics("run").steps.back().step, end);

  ASSERT_EQ(train(each_step("run", {"train.stop_after_validations=4"})), ExitCode::kOk);
  EXPECT_HAS(said(), "warning: train.stop_after_validations: 2 -> 4");
  EXPECT_EQ(metrics("run").steps.back().step, later);
  expect_begins_alike("whole", "run");
  ASSERT_EQ(train(each_step("run")), ExitCode::kOk);
  EXPECT_EQ(metrics("run").steps.back().step, 16);
  EXPECT_EQ(metrics("run").ends.back().reason, EndReason::kSteps);
  expect_begins_alike("whole", "run");
}

// For a stop after any step: before its validation, between two validations, and in the last one.
TEST_F(ValidatedRuns, TheCountSurvivesAResume) {
  const std::vector<std::string> every_second = {"train.validate_every=2", "train.stop_after_validations=3"};
  ASSERT_EQ(train(each_step("unbroken", every_second)), ExitCode::kOk);
  const int64_t end = metrics("unbroken").steps.back().step;
  ASSERT_LT(end, 16);
  const CheckpointState expected = state("unbroken", end);
  EXPECT_EQ(expected.validations_since_best, 3);
  for (int64_t after = 1; after <= end; ++after) {
    SCOPED_TRACE(after);
    const std::string run = fmt::format("after{}", after);
    EXPECT_EQ(train_until(after, each_step(run, every_second)), ExitCode::kRequeue);
    EXPECT_EQ(metrics(run).ends.back().reason, EndReason::kStopRequested);
    ASSERT_EQ(train(each_step(run, every_second)), ExitCode::kOk);
    EXPECT_EQ(metrics(run).steps.back().step, end);
    EXPECT_EQ(validated(run), validated("unbroken"));
    expect_begins_alike("unbroken", run);
    EXPECT_EQ(state(run, end).validations_since_best, 3);
    EXPECT_EQ(state(run, end).best, expected.best);
  }
}

TEST_F(ValidatedRuns, TheDiskNeedsRoomForTheBestCheckpointToo) {
  const Error error = refusal(each_step("run", {"checkpoint.keep=1000000", "model.hidden_size=4096"}));
  expect_error(error, ExitCode::kStorage, "but 1000002 checkpoints of ");
}

// A run that reaches its last step is done, whatever the count.
TEST_F(ValidatedRuns, TheLastStepIsNoEarlyEnd) {
  ASSERT_EQ(train(each_step("whole")), ExitCode::kOk);
  const int64_t end = expected_end(metrics("whole").validations, 2);
  const std::vector<std::string> short_run = {fmt::format("train.steps={}", end),
                                              "train.stop_after_validations=1000"};
  ASSERT_EQ(train(each_step("run", short_run)), ExitCode::kOk);
  EXPECT_EQ(metrics("run").ends.back().reason, EndReason::kSteps);
  ASSERT_EQ(train(each_step("run", {short_run[0], "train.stop_after_validations=1"})), ExitCode::kOk);
  EXPECT_HAS(said(), "was done already: give more train.steps");
}

TEST_F(ValidatedRuns, TheInitialWeightsAreValidatedOnce) {
  ASSERT_EQ(train(each_step("plain", {"train.steps=4"})), ExitCode::kOk);
  const RunConfig config = each_step("run", {"train.steps=4", "train.validate_at_start=true"});
  EXPECT_EQ(train_until(2, config), ExitCode::kRequeue);
  EXPECT_HAS(said(), "validation: before step 1, every 1 step and after the last\n");
  EXPECT_HAS(said(), "validation at step 0  loss ");
  EXPECT_HAS(said(), "  initial weights\n");
  EXPECT_FALSE(std::filesystem::exists(checkpoint("run", 0)));
  EXPECT_EQ(train(config), ExitCode::kOk);
  EXPECT_EQ(validated("run"), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(metrics("run").validations[0].best);
  EXPECT_TRUE(metrics("run").validations[1].best) << "the first checkpoint that is validated";
  // The validation changes nothing but the log.
  const MetricsLog plain = metrics("plain"), found = metrics("run");
  ASSERT_EQ(found.steps.size(), 4U);
  for (size_t s = 0; s < 4; ++s) EXPECT_EQ(found.steps[s].loss, plain.steps[s].loss);
  EXPECT_EQ(state("run", 4).best, state("plain", 4).best);
}

// Without a checkpoint the run begins again, but takes the validation of the initial weights from its log.
TEST_F(ValidatedRuns, AStartThatIsMadeAgainDoesNotValidateAgain) {
  const RunConfig config = each_step("run", {"train.steps=3", "train.validate_at_start=true"});
  ASSERT_EQ(train(config), ExitCode::kOk);
  const std::filesystem::path checkpoints = scratch_ / "run" / "checkpoints";
  const std::vector<int64_t> all = {0, 1, 2, 3};
  std::filesystem::remove_all(checkpoints);
  ASSERT_EQ(train(config), ExitCode::kOk);
  EXPECT_EQ(said().find("validation at step 0"), std::string::npos) << said();
  EXPECT_EQ(validated("run"), all);
  EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3}));
  // Without it in the log, the validation is made.
  std::filesystem::remove_all(checkpoints);
  std::filesystem::remove(scratch_ / "run" / "metrics.jsonl");
  ASSERT_EQ(train(config), ExitCode::kOk);
  EXPECT_EQ(validated("run"), all);
}

TEST_F(ValidatedRuns, AStopInTheFirstValidationLosesNothing) {
  const RunConfig config = each_step("run", {"train.steps=2", "train.validate_at_start=true"});
  int asked = 0;
  EXPECT_EQ(train(config, [&] { return ++asked > 3; }), ExitCode::kRequeue) << "three times in the start";
  EXPECT_HAS(said(), "stopped on a signal before the first step: run the same command again to go on");
  EXPECT_TRUE(validated("run").empty());
  EXPECT_TRUE(steps("run").empty());
  EXPECT_FALSE(std::filesystem::exists(checkpoint("run", 0)));
  EXPECT_EQ(train(config), ExitCode::kOk);
  EXPECT_EQ(validated("run"), (std::vector<int64_t>{0, 1, 2}));
}

TEST_F(ValidatedRuns, TheFirstValidationIsComparedWithTheStart) {
  write_validation({1, 5, 6, 7, 8, 9, 10, 2});  // as in training
  const std::vector<std::string> at_start = {"train.steps=4", "train.validate_every=2",
                                             "train.validate_at_start=true"};
  ASSERT_EQ(train(each_step("better", at_start)), ExitCode::kOk);
  const std::vector<ValidationEvent> better = metrics("better").validations;
  ASSERT_EQ(better.size(), 3U);
  const std::string change = fmt::format("loss {:.4f} -> {:.4f}\n", better[0].loss, better[1].loss);
  EXPECT_HAS(said(), "better than before step 1: " + change);
  EXPECT_EQ(said().find("better than", said().find(change)), std::string::npos) << "once";
  EXPECT_TRUE(metrics("better").warnings.empty());
  // Also compared by a later start than the one that validated.
  EXPECT_EQ(train_until(1, each_step("resumed", at_start)), ExitCode::kRequeue);
  EXPECT_EQ(train(each_step("resumed", at_start)), ExitCode::kOk);
  EXPECT_HAS(said(), "better than before step 1: " + change);

  write_validation({1, 5, 6, 7, 20, 21, 22, 23});  // nothing of training
  ASSERT_EQ(train(each_step("worse", at_start)), ExitCode::kOk);
  const std::vector<ValidationEvent> worse = metrics("worse").validations;
  ASSERT_EQ(metrics("worse").warnings.size(), 1U);
  EXPECT_HAS(
      metrics("worse").warnings[0].text,
      fmt::format("the validation at step 2 is no better than that before step 1: loss {:.4f} -> {:.4f}",
                  worse[0].loss, worse[1].loss));
  EXPECT_TRUE(worse[1].best) << "the initial weights are no checkpoint, so no rival";
}

// validate_at_start alone validates the initial weights only.
TEST_F(ValidatedRuns, OnlyTheInitialWeights) {
  ASSERT_EQ(train(config("run", data_, {"train.steps=3", "train.validate_at_start=true"})), ExitCode::kOk);
  EXPECT_EQ(validated("run"), (std::vector<int64_t>{0}));
  EXPECT_EQ(state("run", 3).validated_step, 0);
}

}  // namespace
}  // namespace ripstop
