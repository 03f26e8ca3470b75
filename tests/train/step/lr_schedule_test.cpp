#include "train/step/lr_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_files.h"

namespace ripstop {
namespace {

TEST(LrSchedule, WarmupBeginsAtOneOverItsStepsAndReachesTheWholeRate) {
  for (const ScheduleKind kind :
       {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kConstant, ScheduleKind::kWsd}) {
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
  for (const ScheduleKind kind :
       {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kConstant, ScheduleKind::kWsd}) {
    const ScheduleSection schedule{kind, 3, 0.1};
    for (int64_t step = 4; step < 60; ++step)
      EXPECT_LE(learning_rate_factor(schedule, step + 1, 50), learning_rate_factor(schedule, step, 50));
  }
}

// tests/golden/make_wsd.py wrote the factors.
TEST(LrSchedule, WsdFallsAsPyTorchsLambdaLrDoes) {
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(golden_file("wsd.json")));
  ASSERT_EQ(golden["cases"].size(), 12U);
  for (const nlohmann::json& one : golden["cases"]) {
    SCOPED_TRACE(one["decay"].get<std::string>());
    ScheduleSection schedule{ScheduleKind::kWsd, one["warmup_steps"], one["minimum_ratio"],
                             one["decay_ratio"]};
    for (const ScheduleDecay decay :
         {ScheduleDecay::kLinear, ScheduleDecay::kOneMinusSqrt, ScheduleDecay::kCosine})
      if (to_string(decay) == one["decay"].get<std::string>()) schedule.decay = decay;
    const int64_t steps = one["steps"];
    for (int64_t step = 1; step <= steps; ++step)
      EXPECT_NEAR(learning_rate_factor(schedule, step, steps),
                  one["factors"][static_cast<size_t>(step - 1)].get<double>(), 1e-15)
          << step << " of " << steps;
    EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, steps + 1, steps), schedule.minimum_ratio);
  }
}

TEST(LrSchedule, WsdHasTheWholeRateUntilItFalls) {
  const ScheduleSection schedule{ScheduleKind::kWsd, 10, 0.1, 0.2};
  for (const int64_t step : {10, 11, 80, 81}) EXPECT_EQ(learning_rate_factor(schedule, step, 100), 1.0);
  EXPECT_LT(learning_rate_factor(schedule, 82, 100), 1.0);
  for (int64_t step = 1; step <= 81; ++step)
    EXPECT_EQ(learning_rate_factor(schedule, step, 100), learning_rate_factor(schedule, step, 150));
}

TEST(LrSchedule, WarmupMayFillTheWholeRun) {
  const ScheduleSection schedule{ScheduleKind::kCosine, 8, 0.0};
  EXPECT_DOUBLE_EQ(learning_rate_factor(schedule, 8, 8), 1.0);
}

}  // namespace
}  // namespace ripstop
