// Whole runs on one rank: the records of their starts, and runs that stop by themselves.
#include <chrono>
#include <cstdlib>

#include "tests/train/run/small_runs.h"
#include "train/checkpoint/takeovers.h"

namespace ripstop {
namespace {

class TakeoverRuns : public SmallRuns {
 protected:
  void SetUp() override { data_ = make_data("data", 4); }
  RunConfig with_steps(int64_t steps, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {fmt::format("train.steps={}", steps)};
    all.insert(all.end(), more.begin(), more.end());
    return config("run", data_, all);
  }
  Takeovers takeovers() {
    Io io;
    return Takeovers::read(io, scratch_ / "run/checkpoints");
  }
  std::vector<int64_t> recorded_steps() {
    std::vector<int64_t> steps;
    const Takeovers recorded = takeovers();
    for (const Takeover& takeover : recorded.all()) steps.push_back(takeover.step);
    return steps;
  }
  ExitCode train_until(const RunConfig& config, double unix_seconds) {
    return Trainer::make({.config = config,
                          .argv = {},
                          .say = [this](const std::string& line) { lines_ += line + "\n"; },
                          .stop_requested = {},
                          .deadline = Deadline{unix_seconds, "RIPSTOP_DEADLINE"}},
                         world_)
        ->run();
  }
  static double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }

  std::string data_, lines_;
};

using StepsOfStarts = std::vector<int64_t>;

TEST_F(TakeoverRuns, EveryStartThatTrainsIsRecorded) {
  ASSERT_EQ(train(with_steps(2)), ExitCode::kOk);
  ASSERT_EQ(train(with_steps(4)), ExitCode::kOk);
  EXPECT_EQ(recorded_steps(), (StepsOfStarts{0, 2}));
  EXPECT_EQ(state("run", 2).takeover, 1);
  EXPECT_EQ(state("run", 4).takeover, 2);
  ASSERT_EQ(train(with_steps(4)), ExitCode::kOk) << "it is done";
  EXPECT_EQ(recorded_steps(), (StepsOfStarts{0, 2}));
  ASSERT_EQ(metrics("run").starts.size(), 3U);
  EXPECT_EQ(metrics("run").starts[1].takeover, 2);
  EXPECT_EQ(metrics("run").starts[2].takeover, 0);
  EXPECT_FALSE(metrics("run").starts[2].deadline);
}

// The checkpoint's archive may be mounted again later. A takeover from an older step would supersede it.
TEST_F(TakeoverRuns, AStoppedStartDoesNotGoBehindACheckpointThatCannotBeRead) {
  ASSERT_EQ(train(with_steps(2)), ExitCode::kOk);
  ASSERT_EQ(train(with_steps(4)), ExitCode::kOk);
  std::filesystem::rename(checkpoint("run", 4), scratch_ / "archived");
  std::filesystem::create_directory_symlink(scratch_ / "archive", checkpoint("run", 4));
  int asked = 0;
  EXPECT_EQ(train(with_steps(6), [&] { return ++asked >= 2; }), ExitCode::kRequeue);
  EXPECT_EQ(recorded_steps(), (StepsOfStarts{0, 2, 4}));
  std::filesystem::rename(scratch_ / "archived", scratch_ / "archive");
  EXPECT_EQ(train(with_steps(6)), ExitCode::kOk);
  EXPECT_EQ(recorded_steps(), (StepsOfStarts{0, 2, 4, 4}));
}

// A takeover's number is above the numbers of all checkpoints, also of copied ones.
TEST_F(TakeoverRuns, CheckpointsWithoutTheirRecordAreTaken) {
  ASSERT_EQ(train(with_steps(2)), ExitCode::kOk);
  ASSERT_EQ(train(with_steps(4)), ExitCode::kOk);
  std::filesystem::remove(scratch_ / "run/checkpoints" / Takeovers::kFileName);
  ASSERT_EQ(train(with_steps(6)), ExitCode::kOk);
  ASSERT_EQ(takeovers().all().size(), 1U);
  EXPECT_EQ(takeovers().all()[0].number, 3);
  EXPECT_EQ(takeovers().all()[0].step, 4);
  EXPECT_EQ(state("run", 6).takeover, 3);
}

// A damaged takeovers.json stops no run.
TEST_F(TakeoverRuns, ADamagedRecordIsWrittenAnew) {
  ASSERT_EQ(train(with_steps(2)), ExitCode::kOk);
  write_bytes(scratch_ / "run/checkpoints" / Takeovers::kFileName, "garbage");
  ASSERT_EQ(train(with_steps(4)), ExitCode::kOk);
  EXPECT_HAS(said(), "it is written anew");
  EXPECT_EQ(recorded_steps(), (StepsOfStarts{2}));
  EXPECT_EQ(state("run", 4).takeover, 2);
}

// A record that is lost while the run lives is restored before the next commit.
TEST_F(TakeoverRuns, ALostRecordIsRestored) {
  on_line_ = [&](const std::string& line) {
    if (line.starts_with("step 1/"))
      std::filesystem::remove(scratch_ / "run/checkpoints" / Takeovers::kFileName);
  };
  ASSERT_EQ(train(with_steps(2)), ExitCode::kOk);
  EXPECT_EQ(recorded_steps(), (StepsOfStarts{0}));
}

// The owner with the older number gives way, even while it holds the LOCK.
TEST_F(TakeoverRuns, ALaterRecordEndsTheRun) {
  on_line_ = [&](const std::string& line) {
    if (!line.starts_with("step 2/")) return;
    Takeovers later = takeovers();
    later.add(0, 0);
    Io io;
    later.write(io, scratch_ / "run/checkpoints");
  };
  expect_error(refusal(with_steps(4, {"checkpoint.every_steps=2", "log.every_steps=1"})), ExitCode::kStorage,
               "takeover 2 by process ");
  EXPECT_FALSE(std::filesystem::exists(checkpoint("run", 2)));
  EXPECT_EQ(metrics("run").ends.size(), 0U) << "nothing is written any more";
}

TEST_F(TakeoverRuns, ThreeRestartsWithoutACheckpointEndAJob) {
  setenv("SLURM_JOB_ID", "4711", 1);
  // At the third call of stop_requested a start has its directory, at the first call it has not.
  for (const int first_yes : {3, 1}) {
    SCOPED_TRACE(first_yes);
    std::filesystem::remove_all(scratch_ / "run");
    const auto stopped_start = [&] {
      int asked = 0;
      return train(with_steps(4), [asked, first_yes]() mutable { return ++asked >= first_yes; });
    };
    for (int restart = 0; restart < 3; ++restart) {
      EXPECT_EQ(stopped_start(), ExitCode::kRequeue) << restart;
      EXPECT_EQ(recorded_steps(), StepsOfStarts(static_cast<size_t>(restart) + 1, 0));
    }
    expect_error([&] { stopped_start(); }, ExitCode::kCommunication,
                 "3 restarts of job 4711 in a row went on from step 0");
  }
  // The next restart does not begin, either. Another job, or a person, may try again.
  EXPECT_EQ(refusal(with_steps(4)).code(), ExitCode::kCommunication);
  setenv("SLURM_JOB_ID", "4712", 1);
  EXPECT_EQ(train(with_steps(4)), ExitCode::kOk);
  unsetenv("SLURM_JOB_ID");
}

TEST_F(TakeoverRuns, ARunStopsItselfBeforeItsTimeLimit) {
  double deadline = 0;
  // On a busy machine the start alone may take a second.
  for (int64_t seconds = 1; seconds <= 64 && lines_.find("\nstep 1/") == std::string::npos; seconds *= 4) {
    std::filesystem::remove_all(scratch_ / "run");
    deadline = now() + TimeLimit::kMarginSeconds + static_cast<double>(seconds);
    EXPECT_EQ(train_until(with_steps(100'000'000), deadline), ExitCode::kRequeue);
  }
  EXPECT_LT(now(), deadline);
  EXPECT_HAS(lines_, "time limit: the job ends at ");
  EXPECT_HAS(lines_, "stopped before its time limit after step ");
  const MetricsLog log = metrics("run");
  ASSERT_EQ(log.ends.size(), 1U);
  EXPECT_EQ(log.ends[0].reason, EndReason::kTimeLimit);
  EXPECT_EQ(log.ends[0].exit_code, 75);
  ASSERT_TRUE(log.starts[0].deadline);
  EXPECT_EQ(*log.starts[0].deadline, deadline);
  EXPECT_EQ(log.starts[0].deadline_source, "RIPSTOP_DEADLINE");
  const int64_t step = log.steps.back().step;
  EXPECT_EQ(state("run", step).step, step) << "the step is saved";
}

TEST_F(TakeoverRuns, ATimeLimitThatIsFarAwayStopsNothing) {
  EXPECT_EQ(train_until(with_steps(3), now() + 86400), ExitCode::kOk);
  EXPECT_EQ(metrics("run").ends.at(0).reason, EndReason::kSteps);
}

// A start that leaves no time for a step asks for a requeue.
TEST_F(TakeoverRuns, AStartThatComesTooLateStopsBeforeTheFirstStep) {
  EXPECT_EQ(train_until(with_steps(4), now() + TimeLimit::kMarginSeconds), ExitCode::kRequeue);
  EXPECT_HAS(lines_, "stopped before its time limit before the first step");
  EXPECT_EQ(recorded_steps(), (StepsOfStarts{0}));
  EXPECT_EQ(train(with_steps(4)), ExitCode::kOk);
  EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace ripstop
