#include "data/dataset/pack_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace ripstop {
namespace {

std::vector<int64_t> random_rows(int64_t count, uint32_t longest, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(1 + random() % longest);
  return rows;
}

/// Expects every row of every example once, pieces of the sequence length, and no sequence too full.
void expect_covers(const PackPlan& plan, const std::vector<int64_t>& rows, int64_t sequence_length) {
  std::map<std::pair<int64_t, int64_t>, int64_t> pieces;
  for (int64_t p = 0; p < plan.sequences(); ++p) {
    int64_t sum = 0;
    for (const PackItem& item : plan.sequence(p)) {
      EXPECT_TRUE(pieces.emplace(std::pair(item.example, item.first_row), item.rows).second) << "seen twice";
      sum += item.rows;
    }
    EXPECT_GE(sum, 1);
    EXPECT_LE(sum, sequence_length);
  }
  std::map<std::pair<int64_t, int64_t>, int64_t> expected;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t first = 0; first < rows[i]; first += sequence_length) {
      expected[{static_cast<int64_t>(i), first}] = std::min(sequence_length, rows[i] - first);
    }
  }
  EXPECT_EQ(pieces, expected);
}

TEST(PackPlanTest, EveryRowLiesInExactlyOneSequence) {
  for (const uint32_t longest : {1u, 7u, 64u, 65u, 300u}) {
    const auto rows = random_rows(500, longest, longest);
    for (const bool pack : {true, false}) {
      for (const bool shuffle : {true, false}) {
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          expect_covers(PackPlan(rows, {64, 5, epoch, pack, shuffle}), rows, 64);
        }
      }
    }
  }
}

TEST(PackPlanTest, DependsOnSeedEpochLengthsAndNothingElse) {
  const auto rows = random_rows(300, 40, 1);
  auto other = rows;
  std::swap(other[0], other[1]);
  const std::string hash = PackPlan(rows, {64, 5, 0}).hash();
  EXPECT_EQ(PackPlan(rows, {64, 5, 0}).hash(), hash);
  EXPECT_NE(PackPlan(rows, {64, 6, 0}).hash(), hash);
  EXPECT_NE(PackPlan(rows, {64, 5, 1}).hash(), hash);
  EXPECT_NE(PackPlan(rows, {65, 5, 0}).hash(), hash);
  ASSERT_NE(rows[0], rows[1]);
  EXPECT_NE(PackPlan(other, {64, 5, 0}).hash(), hash);
}

// Fixed hashes: a change of the algorithm needs a new kVersion, because runs resume in the middle of an
// epoch.
TEST(PackPlanTest, VersionOneNeverChanges) {
  ASSERT_EQ(PackPlan::kVersion, 1);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 1000; ++i) rows.push_back(1 + i * i % 97);
  EXPECT_EQ(PackPlan(rows, {64, 1234, 2}).hash(), "c65b535696d82085ae7d138678fdd284");
  EXPECT_EQ(keyed_permutation(8, 1), (std::vector<int64_t>{0, 3, 5, 1, 2, 7, 6, 4}));
}

TEST(PackPlanTest, FillsSequencesWell) {
  const auto rows = random_rows(20000, 300, 3);
  int64_t total = 0;
  for (const int64_t r : rows) total += r;
  const PackPlan plan(rows, {512, 1, 0});
  EXPECT_GT(static_cast<double>(total) / static_cast<double>(plan.sequences() * 512), 0.97);
}

// data.shuffle = false: the sequences, one after another, are the data set, split items included.
TEST(PackPlanTest, WithOneOpenSequenceNeighboursStayTogether) {
  const std::vector<int64_t> rows = {12, 12, 5, 45, 3};
  const PackPlan plan(rows, {.sequence_length = 20, .shuffle = false, .open_sequences = 1});
  std::vector<std::vector<int64_t>> examples;
  for (int64_t s = 0; s < plan.sequences(); ++s) {
    examples.emplace_back();
    for (const PackItem& item : plan.sequence(s)) examples.back().push_back(item.example);
  }
  EXPECT_EQ(examples, (std::vector<std::vector<int64_t>>{{0}, {1, 2}, {3}, {3}, {3, 4}}));
}

TEST(PackPlanTest, OrderedPlansFollowTheDataSet) {
  const std::vector<int64_t> rows = {10, 10, 10, 10, 10};
  const PackPlan plan(rows, {20, 1, 7, true, false});
  ASSERT_EQ(plan.sequences(), 3);
  EXPECT_EQ(plan.sequence(0)[0].example, 0);
  EXPECT_EQ(plan.sequence(0)[1].example, 1);
  EXPECT_EQ(plan.sequence(2)[0].example, 4);
}

TEST(PackPlanTest, ShuffledPermutationsAreSpread) {
  // In a random permutation, an element moves by a third of the length on average.
  const auto order = keyed_permutation(30000, 77);
  double distance = 0;
  for (int64_t i = 0; i < 30000; ++i)
    distance += std::abs(static_cast<double>(order[static_cast<size_t>(i)] - i));
  EXPECT_NEAR(distance / 30000 / 30000, 1.0 / 3, 0.01);
}

TEST(PackPlanTest, AMillionExamplesTakeNoHours) {
  const auto rows = random_rows(1'000'000, 1000, 4);
  const std::clock_t begin = std::clock();
  const PackPlan plan(rows, {1024, 1, 0});
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 60) << "a pass over all sequences for each is hours";
  EXPECT_EQ(plan.items(), 1'000'000);
}

}  // namespace
}  // namespace ripstop
