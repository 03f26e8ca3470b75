#include "train/machine/slow_ranks.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(RelativeToMedian, EvenAndOddNumbers) {
  EXPECT_EQ(relative_to_median(std::vector<double>{1, 2, 4}), (std::vector<double>{0.5, 1, 2}));
  EXPECT_EQ(relative_to_median(std::vector<double>{4, 2, 2, 4}),
            (std::vector<double>{4 / 3.0, 2 / 3.0, 2 / 3.0, 4 / 3.0}));
  EXPECT_TRUE(relative_to_median({}).empty());
}

TEST(RelativeToMedian, WhatIsNotKnownDoesNotCount) {
  EXPECT_EQ(relative_to_median(std::vector<double>{0, 2, 2, -1}), (std::vector<double>{1, 1, 1, 1}));
}

TEST(ExcludeOption, NamesEachNodeOnce) {
  EXPECT_EQ(exclude_option(std::vector<std::string>{"n2.cluster.org", "n2", "n7"}), "--exclude=n2,n7");
  EXPECT_EQ(exclude_option({}), "");
}

}  // namespace
}  // namespace ripstop
