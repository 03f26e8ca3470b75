#include "train/plan/run_length.h"

#include <gtest/gtest.h>

#include "tests/data/scratch_directory.h"
#include "tests/train/config/small_config.h"
#include "train/machine/peak_flops.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

class RunSpeedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    start_.mesh.fsdp = 2;
    start_.parameters = parameter_count(run_.model);
    start_.flops_per_token = training_flops_per_token(run_.model, 256).causal;
    start_.peak_flops_source = "measured: linear in float32 on all ranks at once";
    start_.time = 1000;
  }
  // Writes a log with one start and steps of these speeds.
  std::optional<RunSpeed> measured(const std::vector<double>& speeds) {
    std::filesystem::remove(path_);
    MetricsFile file(path_);
    file.write(start_);
    for (size_t i = 0; i < speeds.size(); ++i) {
      StepMetrics step;
      step.step = static_cast<int64_t>(i) + 1;
      step.tokens_seen = 100 * step.step;
      step.tokens_per_second = speeds[i];
      step.time = 1001;
      file.write(step);
    }
    file.sync();
    return measured_speed(read_metrics(path_), run_, target_);
  }

  const ScratchDirectory scratch_;
  const std::filesystem::path path_ = scratch_ / "metrics.jsonl";
  const RunTarget target_ = run_target(2, DeviceKind::kCpu, std::nullopt, 32000);
  const ResolvedRun run_ = resolve_run(small_config::parsed(small_config::kSmallest), target_);
  StartEvent start_;
};

TEST_F(RunSpeedTest, TheMedianOfTheLastSteps) {
  std::vector<double> speeds(30, 1.0);  // an old time, then 21 steps, one of which saved
  for (size_t i = 9; i < 30; ++i) speeds[i] = 50;
  speeds[20] = 2;
  const std::optional<RunSpeed> speed = measured(speeds);
  ASSERT_TRUE(speed.has_value());
  EXPECT_EQ(speed->tokens_per_second, 50);
  EXPECT_EQ(speed->tokens_seen, 3000);
}

// A start without a measured peak (other programs kept the processors busy) was still on CPUs.
TEST_F(RunSpeedTest, ARunWithoutAPeakHasASpeed) {
  start_.peak_flops_per_second = std::nullopt;
  start_.peak_flops_source = kNoCpuPeak;
  EXPECT_TRUE(measured({5}).has_value());
}

// The speed of another machine or model is not used.
TEST_F(RunSpeedTest, AnotherRunTellsNothing) {
  ASSERT_TRUE(measured({5}).has_value());
  EXPECT_FALSE(measured({}).has_value());
  const StartEvent good = start_;
  start_.mesh.fsdp = 4;
  EXPECT_FALSE(measured({5}).has_value());
  start_ = good;
  start_.parameters += 1;
  EXPECT_FALSE(measured({5}).has_value());
  start_ = good;
  start_.flops_per_token *= 2;  // longer sequences
  EXPECT_FALSE(measured({5}).has_value());
  start_ = good;
  start_.peak_flops_source = "data sheet: NVIDIA A100 in bfloat16, dense";
  EXPECT_FALSE(measured({5}).has_value());
  start_ = good;
  start_.recompute = "full";
  EXPECT_FALSE(measured({5}).has_value());
  start_ = good;
  start_.time = 2000;  // all steps are of an earlier start
  EXPECT_FALSE(measured({5}).has_value());
}

TEST_F(RunSpeedTest, AnEmptyLogTellsNothing) {
  EXPECT_FALSE(measured_speed({}, run_, target_).has_value());
}

// Recomputation lowers the speed by the data sheet; without a known GPU there is none.
TEST_F(RunSpeedTest, ByTheDataSheetOfAGpu) {
  const auto speed = [&](const std::string& gpu, Recompute recompute) {
    RunTarget target = target_;
    target.device = DeviceKind::kCuda;
    ResolvedRun run = run_;
    run.step.sharding.recompute = recompute;
    RunLength length;
    length.step_tokens = 1000;
    add_planned_time(target, gpu, run, length);
    return length.speed ? length.speed->tokens_per_second : 0;
  };
  EXPECT_GT(speed("NVIDIA H100 80GB HBM3", Recompute::kNone), 0);
  EXPECT_LT(speed("NVIDIA H100 80GB HBM3", Recompute::kFull),
            speed("NVIDIA H100 80GB HBM3", Recompute::kNone));
  EXPECT_EQ(speed("", Recompute::kNone), 0);
}

}  // namespace
}  // namespace ripstop
