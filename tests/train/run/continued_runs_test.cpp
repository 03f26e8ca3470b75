// Whole runs on one rank: a stable part that becomes longer, changes on resume, runs that continue others.
#include <map>

#include "tests/train/run/small_runs.h"
#include "train/checkpoint/takeovers.h"
#include "train/run/run_status.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class ContinuedRuns : public SmallRuns {
 protected:
  void SetUp() override { data_ = make_data("data", 5); }

  // A run of 12 steps with checkpoints of steps 4, 8 and 12.
  RunConfig given(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all = {"train.steps=12", "checkpoint.every_steps=4", "schedule.kind=wsd",
                                    "schedule.decay_ratio=0.25", "log.every_steps=1"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return config(run, data_, all);
  }
  // Trains and stops after step `last`.
  ExitCode train_to(int64_t last, const RunConfig& config) {
    bool stops = false;
    on_line_ = [&](const std::string& line) { stops |= line.starts_with(fmt::format("step {}/", last - 1)); };
    const ExitCode code = train(config, [&] { return stops; });
    on_line_ = {};
    return code;
  }
  ExitCode train_allowed(const RunConfig& config) {
    allow_changes_ = true;
    const ExitCode code = train(config);
    allow_changes_ = false;
    return code;
  }
  std::string source(int64_t step) const {
    return "run.continue_from=" + checkpoint("source", step).string();
  }
  std::map<fs::path, std::string> files_of(const std::string& run) const {
    std::map<fs::path, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_ / run))
      if (entry.is_regular_file()) files[entry.path()] = read_bytes(entry.path());
    return files;
  }

  std::string data_;
};

TEST_F(ContinuedRuns, ALongerStablePartIsThatOfARunPlannedSo) {
  ASSERT_EQ(train(given("planned", {"train.steps=16"})), ExitCode::kOk);
  ASSERT_EQ(train_to(10, given("longer")), ExitCode::kRequeue);  // step 10 of 12 has the whole rate
  ASSERT_EQ(train(given("longer", {"train.steps=16"})), ExitCode::kOk);
  EXPECT_EQ(said().find("the learning rate was"), std::string::npos) << said();
  EXPECT_EQ(losses("longer"), losses("planned"));
  expect_same("longer", "planned", 16);
  // The rate has fallen now.
  const Error error = refusal(given("longer", {"train.steps=20"}));
  EXPECT_EQ(error.code(), ExitCode::kUsage);
  EXPECT_HAS(error.what(), "is at step 16, and its learning rate has begun to fall after step 13");
  EXPECT_EQ(error.hint(), fmt::format("begin a new run: run.continue_from={} run.directory=NEW",
                                      checkpoint("longer", 12).string()));
  ASSERT_EQ(train_allowed(given("longer", {"train.steps=20"})), ExitCode::kOk);
  EXPECT_HAS(said(), "the learning rate was");
}

TEST_F(ContinuedRuns, ACooldownFromTheMiddleIsThatOfARunPlannedSo) {
  ASSERT_EQ(train(given("source", {"checkpoint.keep=0"})), ExitCode::kOk);
  ASSERT_EQ(train(given("planned", {"train.steps=10", "schedule.decay_ratio=0.2"})), ExitCode::kOk);
  const auto before = files_of("source");
  const RunConfig cooldown = given("cooldown", {"train.steps=10", "schedule.decay_ratio=0.2", source(8)});
  ASSERT_EQ(train(cooldown), ExitCode::kOk);
  EXPECT_EQ(files_of("source"), before);
  EXPECT_HAS(said(), "continues " + checkpoint("source", 8).string());
  EXPECT_HAS(said(), "cooldown at step 8 of 10");
  EXPECT_HAS(said(), "warning: schedule.decay_ratio: 0.25 -> 0.2, from step 9 on");
  EXPECT_EQ(said().find("run.directory: "), std::string::npos);
  EXPECT_EQ(said().find("begins again here"), std::string::npos);
  EXPECT_EQ(steps("cooldown"), (std::vector<int64_t>{9, 10}));
  EXPECT_EQ(losses("cooldown"), losses("planned", 8));
  expect_same("cooldown", "planned", 10);
  expect_same("cooldown", "source", 8);  // saved first
  const StartEvent start = metrics("cooldown").starts.front();
  EXPECT_EQ(start.continued_from, checkpoint("source", 8).string());
  ASSERT_EQ(start.changes.size(), 2U);
  EXPECT_EQ(start.changes.front().text(), "train.steps: 12 -> 10");
  EXPECT_EQ(parse_run_config(state("cooldown", 10).config, "config").run.continue_from,
            checkpoint("source", 8).string());
  Io io;
  const std::string note = read_status(io, scratch_ / "cooldown").note;
  EXPECT_HAS(note, "began at step 8 with " + checkpoint("source", 8).string());
  EXPECT_HAS(note, "from step 9 on train.steps: 12 -> 10");
}

// Neither the key nor the other run is needed any more.
TEST_F(ContinuedRuns, AContinuedRunResumesWithAndWithoutTheKey) {
  ASSERT_EQ(train(given("source", {"checkpoint.keep=0"})), ExitCode::kOk);
  const std::vector<std::string> all = {"train.steps=14", source(8)};
  ASSERT_EQ(train(given("unbroken", all)), ExitCode::kOk);
  ASSERT_EQ(train_to(10, given("broken", all)), ExitCode::kRequeue);
  fs::remove_all(scratch_ / "source");
  ASSERT_EQ(train_to(12, given("broken", {"train.steps=14"})), ExitCode::kRequeue);
  ASSERT_EQ(train(given("broken", all)), ExitCode::kOk);
  EXPECT_HAS(said(), "of which nothing is read: the run has a checkpoint of its own");
  EXPECT_EQ(losses("broken"), losses("unbroken"));
  expect_same("broken", "unbroken", 14);
}

TEST_F(ContinuedRuns, TheNewestCheckpointOfARunningRunIsReadAndAShortNameIsFound) {
  const RunConfig first = given("source", {"checkpoint.keep=1", "checkpoint.asynchronous=false"});
  std::string run_of_it;
  on_line_ = [&](const std::string& line) {
    if (!line.starts_with("step 9/")) return;
    const RunConfig other = given("new", {"run.continue_from=" + (scratch_ / "source").string() + "/"});
    Trainer::make({.config = other,
                   .argv = {},
                   .say = [&](const std::string& text) { run_of_it += text + "\n"; },
                   .stop_requested = {}},
                  world_)
        ->run();
  };
  ASSERT_EQ(train(first), ExitCode::kOk);
  on_line_ = {};
  EXPECT_HAS(run_of_it, "new at step 8 of 12");
  EXPECT_EQ(losses("new"), losses("source", 8));
  ASSERT_EQ(train(given("short", {"train.steps=13", "run.continue_from=" +
                                                        (scratch_ / "source/checkpoints/step_12").string()})),
            ExitCode::kOk);
  EXPECT_EQ(steps("short"), std::vector<int64_t>{13});
}

TEST_F(ContinuedRuns, WhatCannotBeContinuedIsRefusedInOneLine) {
  ASSERT_EQ(train(given("source", {"checkpoint.keep=0"})), ExitCode::kOk);
  const auto expect = [&](std::vector<std::string> overrides, ExitCode code, const std::string& what,
                          const std::string& hint) {
    const Error error = refusal(given("new", overrides));
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_HAS(error.what(), "run.continue_from: ");
    EXPECT_HAS(error.what(), what);
    EXPECT_HAS(error.hint(), hint);
    EXPECT_FALSE(fs::exists(scratch_ / "new" / "metrics.jsonl"));
  };
  const std::string run = (scratch_ / "source").string();
  expect({"run.continue_from=" + run + "x"}, ExitCode::kUsage, "no such directory", "did you mean");
  expect_error([&] { given("new", {"run.continue_from="}); }, ExitCode::kUsage,
               "'run.continue_from' must not be empty", "is a shell variable not set?");
  write_bytes(scratch_ / "model/config.json", "{}");
  write_bytes(scratch_ / "model/model.safetensors", "");
  expect({"run.continue_from=" + (scratch_ / "model").string()}, ExitCode::kUsage, "is a model",
         "model.pretrained=" + (scratch_ / "model").string());
  expect({source(7)}, ExitCode::kUsage, "has no checkpoint of step 7", "4, 8, 12");
  expect({"run.continue_from=" + data_}, ExitCode::kUsage, "is neither a run nor a model",
         "give the directory of a run (its run.directory), of a checkpoint, or of a model");
  expect({source(8), "train.steps=8"}, ExitCode::kUsage, "has done 8 steps, and the new run has 8 in all",
         "give more train.steps");
  expect({source(8), "train.global_batch_sequences=2"}, ExitCode::kUsage,
         "train.global_batch_sequences: 1 -> 2", "model.pretrained=" + checkpoint("source", 8).string());
  expect({source(8), "model.intermediate_size=32"}, ExitCode::kUsage, "model.intermediate_size: 24 -> 32",
         "use the old values");
  expect(
      {source(8), "data.directory=" + make_data("other", 6)}, ExitCode::kUsage, "the data set in",
      "begin a new run with its weights on other data: model.pretrained=" + checkpoint("source", 8).string());
  std::string bytes = read_bytes(checkpoint("source", 8) / "rank_00000.h5");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_bytes(checkpoint("source", 8) / "rank_00000.h5", bytes);
  expect({source(8)}, ExitCode::kStorage, "rank_00000.h5",
         "run.continue_from=RUN/checkpoints/step_N takes another checkpoint");
}

TEST_F(ContinuedRuns, AllowedChangesAreStored) {
  ASSERT_EQ(train_to(5, given("run")), ExitCode::kRequeue);
  fs::copy(scratch_ / "run", scratch_ / "before", fs::copy_options::recursive);
  const std::vector<std::string> changed = {"optimizer.learning_rate=5e-3", "train.max_grad_norm=0.5"};
  const Error error = refusal(given("run", changed));
  EXPECT_EQ(error.code(), ExitCode::kUsage);
  for (const char* way : {"--allow-changes", "run.continue_from=", "model.pretrained="})
    EXPECT_HAS(error.hint(), way);
  // A copy of the run as a kill after step 6 would leave it.
  on_line_ = [&](const std::string& line) {
    if (!line.starts_with("step 6/")) return;
    fs::copy(scratch_ / "run", scratch_ / "killed", fs::copy_options::recursive);
    fs::remove(scratch_ / "killed" / "LOCK");
  };
  ASSERT_EQ(train_allowed(given("run", changed)), ExitCode::kOk);
  on_line_ = {};
  EXPECT_EQ(said().find("as before"), std::string::npos) << said();
  EXPECT_HAS(said(), "warning: optimizer.learning_rate: 0.01 -> 0.005, from step 6 on");
  EXPECT_HAS(said(), "warning: the learning rate was 1.00e-02 in step 5 and is 5.00e-03 in step 6");
  const MetricsLog log = metrics("run");
  EXPECT_EQ(log.starts.back().changes.size(), 2U);
  for (const StepMetrics& step : log.steps)
    EXPECT_DOUBLE_EQ(step.learning_rate / (step.step > 5 ? 5e-3 : 1e-2),
                     step.step <= 10 ? 1 : 1 - static_cast<double>(step.step - 10) / 3);
  // Two starts that took over and died before they wrote config.toml; only the first changed something.
  Io io;
  fs::copy(scratch_ / "before", scratch_ / "twice", fs::copy_options::recursive);
  Takeovers died = Takeovers::read(io, scratch_ / "twice/checkpoints");
  died.add(5, 0, log.starts.back().changes);
  died.add(5, 0);
  died.write(io, scratch_ / "twice/checkpoints");
  EXPECT_EQ(train_to(7, given("twice", changed)), ExitCode::kRequeue);
  EXPECT_HAS(read_status(io, scratch_ / "run").note, "from step 6 on optimizer.learning_rate: 0.01 -> 0.005");
  // Without the option the old values are refused now, and the new ones go on, also with the option.
  fs::remove(scratch_ / "killed" / "config.toml");
  expect_error(refusal(given("killed")), ExitCode::kUsage,
               "train.max_grad_norm: 0.5 -> 1.0, optimizer.learning_rate: 0.005 -> 0.01");
  ASSERT_EQ(train_to(7, given("killed", changed)), ExitCode::kRequeue);
  EXPECT_EQ(metrics("killed").starts.back().step, 5);
  EXPECT_TRUE(metrics("killed").starts.back().changes.empty());
  ASSERT_EQ(train_allowed(given("killed", changed)), ExitCode::kOk);
  EXPECT_EQ(losses("killed"), losses("run"));
  expect_same("killed", "run", 12);
}

TEST_F(ContinuedRuns, ARunMayBecomeShorter) {
  ASSERT_EQ(train_to(5, given("run")), ExitCode::kRequeue);
  const Error error = refusal(given("run", {"train.steps=8"}));
  EXPECT_HAS(error.what(), "train.steps: 12 -> 8");
  EXPECT_HAS(error.hint(), "--allow-changes");
  allow_changes_ = true;
  EXPECT_HAS(refusal(given("run", {"train.steps=4"})).what(), "the run has done 5 steps, train.steps is 4");
  EXPECT_HAS(refusal(given("run", {"optimizer.epsilon=1e-6"})).what(), "optimizer.epsilon");
  allow_changes_ = false;
  ASSERT_EQ(train_allowed(given("run", {"train.steps=5"})), ExitCode::kOk);
  EXPECT_HAS(said(), "was done already");
  ASSERT_EQ(train(given("run", {"train.steps=5"})), ExitCode::kOk);
  ASSERT_EQ(train(given("run", {"train.steps=7"})), ExitCode::kOk) << "more steps need no option";
  EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace ripstop
