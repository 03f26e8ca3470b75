#include "train/machine/rank_speed.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(RankSpeedOfDoctor, NamesWhatIsSlowAndWhere) {
  std::vector<RankSpeed> speeds(4, {1e12, 2e11, 9e9, 1e9});
  EXPECT_TRUE(slow_ranks_of(speeds).empty());
  speeds[1].flops_per_second = 5e11;
  speeds[3].between_bytes_per_second = 1e8;
  speeds[3].memory_bytes_per_second = 1.7e11;  // 0.85
  const std::vector<SlowRankFound> found = slow_ranks_of(speeds);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].what, "products");
  EXPECT_EQ(found[0].share, 0.5);
  EXPECT_EQ(found[1].rank, 3);
  EXPECT_EQ(found[1].what, "links between nodes");
}

TEST(RankSpeedOfDoctor, WhatWasNotMeasuredIsNotSlow) {
  std::vector<RankSpeed> speeds(3, {1e12, 2e11, 0, 0});
  speeds[0].inside_bytes_per_second = 1e9;
  EXPECT_TRUE(slow_ranks_of(speeds).empty());
}

// A world of one, which has no links.
TEST(RankSpeedOfDoctor, MeasuresThisRank) {
  MpiWorld world;
  const std::vector<RankSpeed> speeds = measure_ranks(world, Device::cpu());
  ASSERT_EQ(speeds.size(), 1U);
  EXPECT_GT(speeds[0].flops_per_second, 1e8);
  EXPECT_GT(speeds[0].memory_bytes_per_second, 1e7);
  EXPECT_EQ(speeds[0].inside_bytes_per_second, 0);
  EXPECT_EQ(speeds[0].between_bytes_per_second, 0);
}

}  // namespace
}  // namespace ripstop
