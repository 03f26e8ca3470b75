#include "train/page/columns.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ripstop {
namespace {

TEST(Columns, KeepLeastMostAndSumOfAnyNumberOfSteps) {
  Columns columns(64);
  constexpr int64_t kSteps = 100'000;
  for (int64_t step = 1; step <= kSteps; ++step) {
    Column& column = columns.at(step, static_cast<double>(10 * step), 0);
    column[Series::kLoss].add(step == 70'001 ? 1e6 : 1.0);
    if (step > 50'000) column.set(1).loss.add(2.0), column.set(1).validation.add(3.0);
  }
  ASSERT_LE(columns.all().size(), 64U);
  ASSERT_GT(columns.all().size(), 32U);
  Extent all, sets, validations;
  for (const Column& column : columns.all()) {
    all.add(column[Series::kLoss]);
    for (const SetExtents& set : column.sets) sets.add(set.loss), validations.add(set.validation);
    EXPECT_EQ(column.tokens, static_cast<double>(10 * column.step));
    EXPECT_EQ(column.index, column.step / columns.width());
    EXPECT_EQ(column[Series::kLoss].most == 1e6, column.index == 70'001 / columns.width());
  }
  EXPECT_EQ(all.count, kSteps);
  EXPECT_EQ(all.least, 1);
  EXPECT_EQ(all.sum, static_cast<double>(kSteps) - 1 + 1e6);
  EXPECT_EQ(sets.sum, 2.0 * 50'000) << "of the second set alone, from the middle on";
  EXPECT_EQ(validations.sum, 3.0 * 50'000);
}

TEST(Columns, FewStepsHaveAColumnEach) {
  Columns columns(64);
  for (int64_t step = 0; step < 64; ++step) columns.at(step, 0, 0)[Series::kNorm].add(1);
  EXPECT_EQ(columns.all().size(), 64U);
  EXPECT_EQ(columns.width(), 1);
}

TEST(Columns, NumbersThatAreNotFiniteAreCountedApart) {
  Extent extent;
  for (const double value : {1.0, std::nan(""), -HUGE_VAL, 3.0}) extent.add(value);
  EXPECT_EQ(extent.count, 2);
  EXPECT_EQ(extent.not_finite, 2);
  EXPECT_EQ(extent.mean(), 2);
}

// A log from outside may have any steps in any order.
TEST(Columns, AnyStepsGiveColumnsInOrder) {
  Columns columns(2);
  for (const int64_t step : {int64_t{5}, int64_t{1} << 60, int64_t{-7}, int64_t{3}, int64_t{1} << 59})
    columns.at(step, 0, 0)[Series::kLoss].add(1);
  int64_t count = 0, last = -1;
  for (const Column& column : columns.all()) {
    EXPECT_GT(column.index, last);
    last = column.index;
    count += column[Series::kLoss].count;
  }
  EXPECT_EQ(count, 5);
}

}  // namespace
}  // namespace ripstop
