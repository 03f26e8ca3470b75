// The account of runs of one rank over their starts.
#include "train/run/account_watch.h"

#include "tests/train/machine/powercap_tree.h"
#include "tests/train/run/small_runs.h"

namespace ripstop {
namespace {

class AccountRuns : public SmallRuns {
 protected:
  void add_counters() {
    tree_.emplace(scratch_.path());
    tree_->add("intel-rapl:0", "package-0", 5);
  }
  // Trains to `steps`, or stops after `stops_after` steps of this start. Each step takes 3.6 kJ, 0.001 kWh.
  ExitCode train_to(int64_t steps, int64_t stops_after = 1000, const std::vector<std::string>& keys = {},
                    const std::string& run = "run") {
    std::vector<std::string> overrides = {fmt::format("train.steps={}", steps)};
    overrides.insert(overrides.end(), keys.begin(), keys.end());
    int64_t asked = 0;
    return train(config(run, data_, overrides), [&, stops_after] {
      // The start asks before its first step, too.
      const bool is_step = said().find(" at step ") != std::string::npos;
      if (is_step && tree_) tree_->take("intel-rapl:0", 3600);
      return is_step && ++asked >= stops_after;
    });
  }
  RunAccount end() const { return metrics("run").ends.back().account.value(); }

  const std::string data_ = make_data("data", 40);
  std::optional<PowercapTree> tree_;
};

TEST_F(AccountRuns, StartsAddUp) {
  add_counters();
  ASSERT_EQ(train_to(9, 2), ExitCode::kRequeue);
  const RunAccount first = end();
  EXPECT_NEAR(first.kwh.value(), 0.002, 1e-9);
  EXPECT_EQ(first.tokens, metrics("run").steps.back().tokens_seen);
  EXPECT_EQ(metrics("run").starts[0].account->kwh, 0);
  ASSERT_EQ(train_to(9, 3), ExitCode::kRequeue);
  ASSERT_EQ(train_to(9), ExitCode::kOk);
  const MetricsLog log = metrics("run");
  ASSERT_EQ(log.ends.size(), 3U);
  EXPECT_NEAR(log.ends[1].account->kwh.value(), 0.005, 1e-9);
  EXPECT_NEAR(end().kwh.value(), 0.009, 1e-9);
  EXPECT_NEAR(log.starts[2].account->kwh.value(), 0.005, 1e-9);
  EXPECT_EQ(log.starts[2].tokens_seen, log.steps[4].tokens_seen);
  EXPECT_EQ(end().tokens, log.steps[8].tokens_seen);
  EXPECT_FALSE(end().gpu_kwh) << "there is no GPU";
  double hours = 0;
  for (const EndEvent& event : log.ends) hours += event.seconds / 3600;
  EXPECT_NEAR(end().node_hours, hours, 0.1 * hours);
  EXPECT_GT(end().node_hours, log.ends[1].account->node_hours);
  EXPECT_NEAR(end().watts().value(), 1e3 * 0.009 / end().node_hours, 1);
  EXPECT_NEAR(end().tokens_per_kwh().value(), static_cast<double>(end().tokens) / 0.009, 1e-3);
  EXPECT_EQ(last_account(log), end());
}

// A step that is made again is paid twice and counts once. The lines of steps that a killed start lost are
// removed, but not from the account.
TEST_F(AccountRuns, LostStepsArePaid) {
  add_counters();
  ASSERT_EQ(train_to(9, 4), ExitCode::kRequeue);
  std::filesystem::remove_all(checkpoint("run", 4));
  StepMetrics lost = metrics("run").steps.back();
  lost.step = 8;
  lost.account = end();
  lost.account->kwh = 0.007;
  lost.account->node_hours += 2;
  {
    MetricsFile file(scratch_ / "run/metrics.jsonl");
    file.write(lost);
  }
  ASSERT_EQ(train_to(9), ExitCode::kOk);
  const MetricsLog log = metrics("run");
  EXPECT_EQ(log.steps.size(), 9U);
  EXPECT_NEAR(log.starts.back().account->kwh.value(), 0.007, 1e-9);
  EXPECT_NEAR(end().kwh.value(), 0.016, 1e-9);
  EXPECT_GT(end().node_hours, 2);
  EXPECT_EQ(end().tokens, log.steps.back().tokens_seen);
}

TEST_F(AccountRuns, WhatCannotBeReadOnceStaysUnknown) {
  ASSERT_EQ(train_to(4, 2), ExitCode::kRequeue);
  EXPECT_FALSE(end().kwh) << "there is no counter";
  EXPECT_FALSE(end().tokens_per_kwh());
  EXPECT_FALSE(end().watts());
  EXPECT_GT(end().node_hours, 0);
  EXPECT_HAS(read_bytes(scratch_ / "run/metrics.jsonl"), "\"kwh\":null");
  add_counters();
  ASSERT_EQ(train_to(4), ExitCode::kOk);
  EXPECT_FALSE(end().kwh) << "a start before was not counted";
}

TEST_F(AccountRuns, ALostLogHasNoAccount) {
  add_counters();
  ASSERT_EQ(train_to(4, 2), ExitCode::kRequeue);
  std::filesystem::remove(scratch_ / "run/metrics.jsonl");
  ASSERT_EQ(train_to(4), ExitCode::kOk);
  EXPECT_FALSE(metrics("run").ends.back().account) << "what the first start took is not known";
  EXPECT_FALSE(last_account(metrics("run")));
}

TEST_F(AccountRuns, TokensOfAnotherRunDoNotCount) {
  add_counters();
  ASSERT_EQ(train_to(3, 1000, {}, "first"), ExitCode::kOk);
  const std::string from = fmt::format("run.continue_from=\"{}\"", (scratch_ / "first").string());
  ASSERT_EQ(train_to(6, 1, {from}), ExitCode::kRequeue);
  ASSERT_EQ(train_to(6, 1000, {from}), ExitCode::kOk);
  const MetricsLog log = metrics("run");
  EXPECT_NEAR(end().kwh.value(), 0.003, 1e-9);
  EXPECT_EQ(log.starts[0].tokens_seen, metrics("first").steps.back().tokens_seen);
  EXPECT_EQ(end().tokens, log.steps.back().tokens_seen - log.starts[0].tokens_seen);
}

// An error ends the run: the account still tells what it took.
TEST_F(AccountRuns, AFailedStartHasAnAccount) {
  add_counters();
  on_line_ = [&](const std::string& line) {
    if (line.find("step 2/") != std::string::npos) throw Error(ExitCode::kResources, "no more");
  };
  EXPECT_THROW(train_to(4, 1000, {"log.every_steps=1"}), Error);
  EXPECT_EQ(metrics("run").ends.back().exit_code, 78);
  EXPECT_NEAR(end().kwh.value(), 0.002, 1e-9);
}

}  // namespace
}  // namespace ripstop
