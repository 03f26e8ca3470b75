#include "train/run/time_limit.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>

#include "data/process/blocked_signals.h"
#include "data/process/child_process.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string whole(double seconds) {
  return std::to_string(static_cast<int64_t>(seconds));
}

/// Sets environment variables and a `squeue` script for each test, and restores them.
class DeadlineTest : public testing::Test {
 protected:
  static constexpr const char* kNames[] = {"SLURM_JOB_ID",        "SLURM_JOB_END_TIME", "SLURM_ARRAY_JOB_ID",
                                           "SLURM_ARRAY_TASK_ID", "RIPSTOP_DEADLINE",   "PATH"};
  void SetUp() override {
    for (const char* name : kNames)
      if (const char* value = getenv(name)) before_[name] = value;
    for (const char* name : kNames) unsetenv(name);
    setenv("PATH", (scratch_.path().string() + ":" + before_["PATH"]).c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : kNames) {
      if (before_.count(name) > 0)
        setenv(name, before_[name].c_str(), 1);
      else
        unsetenv(name);
    }
  }
  void squeue(const std::string& body) {
    write_bytes(scratch_ / "squeue", "#!/bin/sh\n" + body + "\n");
    chmod((scratch_ / "squeue").c_str(), 0755);
  }
  std::optional<Deadline> find() {
    notes_.clear();
    return find_deadline(notes_);
  }

  ScratchDirectory scratch_;
  std::map<std::string, std::string> before_;
  std::vector<std::string> notes_;
};

TEST_F(DeadlineTest, ComesFromTheJobOrFromThePerson) {
  squeue("echo asked >>" + (scratch_ / "asked").string());
  EXPECT_FALSE(find()) << "no job";
  setenv("SLURM_JOB_END_TIME", whole(unix_now() + 100).c_str(), 1);
  EXPECT_FALSE(find()) << "a variable without a job says nothing";
  setenv("SLURM_JOB_ID", "7", 1);
  std::optional<Deadline> found = find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, "SLURM_JOB_END_TIME");
  EXPECT_NEAR(found->time, unix_now() + 100, 60);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "asked")) << "squeue is not needed";
  // The earlier deadline counts.
  setenv("RIPSTOP_DEADLINE", whole(unix_now() + 50).c_str(), 1);
  EXPECT_EQ(find()->source, "RIPSTOP_DEADLINE");
  setenv("RIPSTOP_DEADLINE", whole(unix_now() + 5000).c_str(), 1);
  EXPECT_EQ(find()->source, "SLURM_JOB_END_TIME");
  unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(find()->source, "RIPSTOP_DEADLINE");
  setenv("RIPSTOP_DEADLINE", "9223372036854775807", 1);
  EXPECT_FALSE(find()) << "no limit, and no date that a person could read";
}

TEST_F(DeadlineTest, SqueueIsAskedWhereTheVariableIsMissing) {
  setenv("SLURM_JOB_ID", "4711", 1);
  const std::string arguments = (scratch_ / "arguments").string();
  squeue("echo \"$*; $SLURM_TIME_FORMAT\" >" + arguments + "; echo " + whole(unix_now() + 300));
  const std::optional<Deadline> found = find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, "squeue");
  EXPECT_NEAR(found->time, unix_now() + 300, 60);
  EXPECT_EQ(read_bytes(scratch_ / "arguments"), "-h -j 4711 -o %e; %s\n");
  for (const char* answer :
       {"echo N/A", "echo NONE", "true", "exit 1", "echo 2026-11-23T05:35:00", "echo 5; exit 1"}) {
    squeue(answer);
    EXPECT_FALSE(find()) << answer;
    EXPECT_TRUE(notes_.empty()) << answer;
  }
  squeue("echo " + whole(unix_now() + 86400.0 * 365));
  EXPECT_FALSE(find()) << "a job without a limit";
}

// The number of an array's last task stands for the whole array.
TEST_F(DeadlineTest, ATaskOfAnArrayHasItsOwnEnd) {
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("SLURM_ARRAY_JOB_ID", "4711", 1);
  setenv("SLURM_ARRAY_TASK_ID", "3", 1);
  squeue("[ \"$3\" = 4711_3 ] && echo " + whole(unix_now() + 300));
  EXPECT_TRUE(find());
}

TEST_F(DeadlineTest, ALimitThatWasRaisedIsAskedForBeforeTheRunStops) {
  setenv("SLURM_JOB_ID", "4711", 1);
  const double now = unix_now();
  TimeLimit limit({now + 10, "SLURM_JOB_END_TIME"}, /*save_seconds=*/0);
  squeue("echo asked >>" + (scratch_ / "asked").string() + "; echo " + whole(now + 10));
  EXPECT_FALSE(TimeLimit({now + 1000, "squeue"}, 0).is_up(1));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "asked")) << "the end is far";
  EXPECT_TRUE(limit.is_up(0)) << "the same end";
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "asked"));
  squeue("exit 1");
  EXPECT_TRUE(limit.is_up(0)) << "no answer";
  squeue("echo " + whole(now + 25));
  EXPECT_TRUE(limit.is_up(10)) << "later, but not late enough";
  squeue("echo " + whole(now + 3000));
  EXPECT_FALSE(limit.is_up(10));
  EXPECT_EQ(limit.deadline().source, "squeue");
  squeue("echo NONE");
  EXPECT_FALSE(limit.is_up(2999)) << "a limit that was taken off";
  limit = TimeLimit({now + 10, "SLURM_JOB_END_TIME"}, /*save_seconds=*/0);
  // A deadline of the person's own comes first, and stays.
  setenv("RIPSTOP_DEADLINE", whole(now + 3030).c_str(), 1);
  squeue("echo " + whole(now + 9000));
  EXPECT_FALSE(limit.is_up(2990));
  EXPECT_EQ(limit.deadline().source, "RIPSTOP_DEADLINE");
  EXPECT_TRUE(limit.is_up(3030));
}

// A variable from a job that has ended must not stop every run at once.
TEST_F(DeadlineTest, TheEndOfAJobInThePastIsNone) {
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_JOB_END_TIME", "1700000000", 1);
  EXPECT_FALSE(find());
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_HAS(notes_[0], "SLURM_JOB_END_TIME says that the job ended at 2023-11-");
}

TEST_F(DeadlineTest, AWrongDeadlineIsRefused) {
  for (const char* wrong : {"tomorrow", "-5", "1e9", "17000000000000000000000", "1700000000"}) {
    setenv("RIPSTOP_DEADLINE", wrong, 1);
    expect_error([&] { find(); }, ExitCode::kUsage, wrong, "date -d");
  }
}

TEST(TimeLimit, KeepsTimeForTwoSavesAndTheSlowestStep) {
  TimeLimit limit({unix_now() + 1000, "squeue"}, /*save_seconds=*/100);
  EXPECT_EQ(limit.reserve(0), 200 + TimeLimit::kMarginSeconds) << "what a save is thought to take";
  limit.took_save(3);
  limit.took_save(7);
  limit.took_save(5);
  EXPECT_EQ(limit.reserve(0), 14 + TimeLimit::kMarginSeconds) << "the slowest that was measured";
  EXPECT_EQ(limit.step_seconds(), 0);
  limit.took_step(50);
  limit.took_step(2);
  EXPECT_EQ(limit.step_seconds(), 50);
  for (size_t i = 0; i < kRecentSteps; ++i) limit.took_step(1);
  EXPECT_EQ(limit.step_seconds(), 1) << "the first step, which is slow, is long ago";
  EXPECT_FALSE(limit.is_up(1));
  EXPECT_FALSE(limit.is_up(900));
  EXPECT_TRUE(limit.is_up(990));
  EXPECT_HAS(limit.text(), "(squeue), in ");
  EXPECT_HAS(limit.text(), "saves and stops itself about 35s before, or when an earlier SIGUSR1 comes");
}

TEST(TimeLimit, LooksAreAsFarApartAsTheSlowestPart) {
  LookIntervals intervals;
  EXPECT_EQ(intervals.look(), 0);
  usleep(30000);
  const double longest = intervals.look();
  EXPECT_GE(longest, 0.03);
  EXPECT_GE(intervals.look(), longest);
}

TEST(OutputOfProgram, TheProgramTakesSignalsThatThisThreadHasBlocked) {
  const BlockedSignals blocked;
  const auto mask = output_of_program({"sed", "-n", "s/^SigBlk:\\t//p", "/proc/self/status"}, 10);
  EXPECT_EQ(mask, "0000000000000000\n");
}

TEST(OutputOfProgram, GivesWhatAProgramSays) {
  EXPECT_EQ(output_of_program({"echo", "two words"}, 10), "two words\n");
  EXPECT_EQ(output_of_program({"sh", "-c", "echo $A"}, 10, {{"A", "b"}}), "b\n");
  EXPECT_FALSE(output_of_program({"false"}, 10));
  EXPECT_FALSE(output_of_program({"/no/such/program"}, 10));
  const std::optional<std::string> much = output_of_program({"head", "-c", "1000000", "/dev/zero"}, 60);
  ASSERT_TRUE(much);
  EXPECT_EQ(much->size(), size_t{1} << 16);
}

TEST(OutputOfProgram, EndsOneThatHangs) {
  EXPECT_FALSE(output_of_program({"sleep", "1000"}, 0.05));
  EXPECT_FALSE(output_of_program({"sh", "-c", "exec >&-; exec sleep 1000"}, 0.2)) << "without output";
}

}  // namespace
}  // namespace ripstop
