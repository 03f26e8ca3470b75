#include "train/run/step_deadline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ripstop {
namespace {

TEST(StepDeadlineOfARun, ANumberHoldsEverywhere) {
  StepDeadline deadline(45);
  for (int i = 0; i < 10; ++i) deadline.learn(1000);
  EXPECT_EQ(deadline.in_step(), 45);
  EXPECT_EQ(deadline.outside_steps(), 45);
}

TEST(StepDeadlineOfARun, NothingIsLearnedFromTwoSteps) {
  StepDeadline deadline(std::nullopt);
  EXPECT_EQ(deadline.in_step(), 600);
  deadline.learn(1);
  deadline.learn(1);
  EXPECT_EQ(deadline.in_step(), 600);
  deadline.learn(1);
  EXPECT_EQ(deadline.in_step(), 60) << "the least";
  EXPECT_EQ(deadline.outside_steps(), 600) << "saves may take longer than any step";
}

TEST(StepDeadlineOfARun, OneFreakStepChangesNothingAndASlowerRunIsLearned) {
  StepDeadline deadline(std::nullopt);
  for (int i = 0; i < 50; ++i) deadline.learn(40);
  EXPECT_EQ(deadline.in_step(), 120);
  deadline.learn(36000);  // the job was suspended for ten hours
  EXPECT_EQ(deadline.in_step(), 120);
  // A node at half speed, whose steps stay below the old deadline.
  for (int i = 0; i < 3; ++i) deadline.learn(80);
  EXPECT_EQ(deadline.in_step(), 240);
  for (int i = 0; i < 60; ++i) deadline.learn(30);
  EXPECT_EQ(deadline.in_step(), 90) << "and it is forgotten";
}

// For any steps the deadline is 3 times the second longest of the last 50, and at least 60 s.
TEST(StepDeadlineOfARun, IsBetweenTheStepsItHasSeen) {
  std::mt19937 random(7);
  for (int run = 0; run < 200; ++run) {
    StepDeadline deadline(std::nullopt);
    std::vector<double> seconds;
    const int count = 3 + static_cast<int>(random() % 120);
    for (int i = 0; i < count; ++i) {
      seconds.push_back(0.01 * static_cast<double>(random() % 100000));
      deadline.learn(seconds.back());
    }
    const size_t first = seconds.size() - std::min<size_t>(seconds.size(), 50);
    std::sort(seconds.begin() + static_cast<ptrdiff_t>(first), seconds.end());
    EXPECT_EQ(deadline.in_step(), std::max(60.0, 3 * seconds[seconds.size() - 2]));
  }
}

}  // namespace
}  // namespace ripstop
