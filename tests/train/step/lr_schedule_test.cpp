#include "train/step/lr_schedule.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(LrSchedule, WarmupBeginsAtOneOverItsStepsAndReachesTheWholeRate) {
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kConstant}) {
    const ScheduleSection schedule{kind, 10, 0.1};
    EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, 1, 100), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, 5, 100), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, 10, 100), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, 11, 100), 1.0);
  }
}

// The values of transformers' get_cosine_schedule_with_warmup and get_linear_schedule_with_warmup, whose step
// counts from 0: lambda(current) = max(0, ...) with current = step - 1.
TEST(LrSchedule, FallsAsHuggingFaceDoes) {
  const ScheduleSection cosine{ScheduleKind::kCosine, 0, 0.0};
  EXPECT_DOUBLE_EQ(learning_rate_factor(cosine, 1, 4), 1.0);
  EXPECT_NEAR(learning_rate_factor(cosine, 2, 4), 0.8535533905932737, 1e-15);
  EXPECT_NEAR(learning_rate_factor(cosine, 3, 4), 0.5, 1e-15);
  EXPECT_NEAR(learning_rate_factor(cosine, 4, 4), 0.14644660940672627, 1e-15);
  const ScheduleSection linear{ScheduleKind::kLinear, 10, 0.0};
  EXPECT_DOUBLE_EQ(learning_rate_factor(linear, 56, 100), 0.5);
  EXPECT_NEAR(learning_rate_factor(linear, 100, 100), 1.0 / 90.0, 1e-15);
}

TEST(LrSchedule, EndsAtTheMinimum) {
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kLinear}) {
    const ScheduleSection schedule{kind, 5, 0.25};
    EXPECT_GT(learning_rate_factor(schedule, 1000, 1000), 0.25);
    EXPECT_NEAR(learning_rate_factor(schedule, 1000, 1000), 0.25, 1e-3);
    EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, 1001, 1000), 0.25);
  }
}

TEST(LrSchedule, NeverRisesAfterTheWarmup) {
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kConstant}) {
    const ScheduleSection schedule{kind, 3, 0.1};
    for (int64_t step = 4; step < 60; ++step)
      EXPECT_LE(learning_rate_factor(schedule, step + 1, 50), learning_rate_factor(schedule, step, 50));
  }
}

TEST(LrSchedule, WarmupMayFillTheWholeRun) {
  const ScheduleSection schedule{ScheduleKind::kCosine, 8, 0.0};
  EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, 8, 8), 1.0);
}

}  // namespace
}  // namespace ripstop
