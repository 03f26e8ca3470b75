#include "data/prepare/length_histogram.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(LengthHistogramTest, RanksAreThoseOfTheSortedList) {
  LengthHistogram histogram;
  for (int64_t i = 1; i <= 100; ++i) histogram.add(i);
  const LengthStatistics s = histogram.statistics();
  EXPECT_EQ(s.median, 50);
  EXPECT_EQ(s.p90, 90);
  EXPECT_EQ(s.p99, 99);
  EXPECT_EQ(s.longest, 100);
  EXPECT_DOUBLE_EQ(s.mean, 50.5);
  histogram.add(1'000'000);
  EXPECT_EQ(histogram.statistics().longest, 1'000'000);
  EXPECT_EQ(LengthHistogram().statistics().median, 0);
}

}  // namespace
}  // namespace ripstop
