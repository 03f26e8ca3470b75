#include "train/run/long_step.h"

#include <gtest/gtest.h>

#include "parallel/mpi_world.h"

namespace ripstop {
namespace {

class LongStepTest : public ::testing::Test {
 protected:
  bool gives_up(LongStep& step, int64_t done, int64_t total, bool stop) {
    return step.gives_up(
        done, total,
        [&] {
          ++votes_;
          return stop;
        },
        [] {});
  }
  MpiWorld world_;
  int votes_ = 0;
};

TEST_F(LongStepTest, ShortStepsAreNeverGivenUp) {
  LongStep step(world_.communicator(), 1, {.vote_seconds = 0, .most_seconds = 1e6});
  for (int i = 0; i < 3; ++i) {
    step.begin();
    for (int64_t done = 1; done < 5; ++done) EXPECT_FALSE(gives_up(step, done, 5, true));
  }
  EXPECT_EQ(votes_, 1) << "and cost one vote in all";
}

TEST_F(LongStepTest, ALongStepIsGivenUpIfAStopIsRequested) {
  LongStep step(world_.communicator(), 1, {.vote_seconds = 0, .most_seconds = 0});
  step.begin();
  EXPECT_FALSE(gives_up(step, 1, 5, false));
  EXPECT_TRUE(gives_up(step, 2, 5, true));
  EXPECT_FALSE(gives_up(step, 5, 5, true)) << "it is done";
  step.begin();
  EXPECT_TRUE(gives_up(step, 1, 5, true));
  EXPECT_EQ(votes_, 3);
}

// Ranks of a pipeline are at different micro-batches, so a vote takes as many as there are stages.
TEST_F(LongStepTest, VotesOfAPipelineEndLater) {
  LongStep step(world_.communicator(), 4, {.vote_seconds = 0, .most_seconds = 0});
  step.begin();
  for (int64_t done = 1; done < 5; ++done) EXPECT_FALSE(gives_up(step, done, 40, true));
  EXPECT_EQ(votes_, 1);
  EXPECT_TRUE(gives_up(step, 5, 40, true));
  step.begin();
  EXPECT_FALSE(gives_up(step, 1, 40, false));
  for (int64_t done = 2; done < 10; ++done) EXPECT_FALSE(gives_up(step, done, 40, true)) << done;
  EXPECT_EQ(votes_, 3) << "the request came after the first of two votes";
  EXPECT_TRUE(gives_up(step, 10, 40, true));
  step.begin();
  for (int64_t done = 1; done < 5; ++done) EXPECT_FALSE(gives_up(step, done, 5, true));
  EXPECT_EQ(votes_, 3) << "it would end with the step";
}

TEST_F(LongStepTest, VotesAreRare) {
  LongStep step(world_.communicator(), 1, {.vote_seconds = 1e9, .most_seconds = 0});
  step.begin();
  EXPECT_FALSE(gives_up(step, 1, 100, false));
  for (int64_t done = 2; done < 100; ++done) EXPECT_FALSE(gives_up(step, done, 100, true));
  EXPECT_EQ(votes_, 1);
}

}  // namespace
}  // namespace ripstop
