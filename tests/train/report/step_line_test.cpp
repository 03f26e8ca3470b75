#include <gtest/gtest.h>

#include <cmath>

#include "tests/expect_has.h"
#include "train/report/human_text.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

StepMetrics step_1200() {
  StepMetrics step;
  step.step = 1200;
  step.loss = 2.31874;
  step.grad_norm = 0.41;
  step.learning_rate = 1.98e-5;
  step.tokens_per_second = 118400.2;
  step.model_flops_utilization = 0.412;
  step.peak_memory_bytes = static_cast<int64_t>(61.3 * (int64_t{1} << 30));
  return step;
}

TEST(StepLine, IsTheContracts) {
  StepMetrics step = step_1200();
  EXPECT_EQ(
      step_line(step, 20000, int64_t{64} << 30, 11520),
      "step 1200/20000  loss 2.3187  grad_norm 0.41  lr 1.98e-05  118400 tok/s  mfu 41.2%  61.3/64.0 GiB  "
      "eta 3h12m");
  step.model_flops_utilization.reset();
  step.grad_norm = 0.00321;
  EXPECT_EQ(step_line(step, 20000, std::nullopt, 59.6),
            "step 1200/20000  loss 2.3187  grad_norm 0.0032  lr 1.98e-05  118400 tok/s  61.3 GiB  eta 1m00s");
}

// The sign of a NaN is arbitrary.
TEST(StepLine, NanHasNoSign) {
  StepMetrics step;
  step.loss = step.grad_norm = std::copysign(std::nan(""), -1);
  EXPECT_HAS(step_line(step, 1, std::nullopt, 0), "  loss nan  grad_norm nan  ");
  EXPECT_HAS(live_step_line(step, 1, 0), "  loss nan  ");
}

TEST(StepLine, TheLiveLineHasWhatPeopleWaitFor) {
  EXPECT_EQ(live_step_line(step_1200(), 20000, 11520),
            "step 1200/20000  loss 2.3187  118400 tok/s  eta 3h12m");
}

TEST(StepLine, MemoryChoosesItsUnit) {
  StepMetrics step;
  step.peak_memory_bytes = int64_t{2600} << 10;
  EXPECT_HAS(step_line(step, 1, std::nullopt, 0), "  2.5 MiB  eta");
  EXPECT_HAS(step_line(step, 1, int64_t{64} << 30, 0), "  2.5 MiB/64.0 GiB  eta");
  EXPECT_HAS(step_line(step, 1, int64_t{5} << 20, 0), "  2.5/5.0 MiB  eta");
}

}  // namespace
}  // namespace ripstop
