#include "train/evaluate/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/test_files.h"

namespace ripstop {
namespace {

TEST(Bootstrap, EqualsNumpyWithTheSameDraws) {
  std::ifstream file(golden_file("bootstrap.json"));
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 4U);
  for (const auto& given : cases) {
    const auto rows = given.at("rows").get<std::vector<ScoreRow>>();
    const auto intervals = bootstrap_intervals(rows, given.at("resamples"), given.at("seed"));
    for (size_t column = 0; column < intervals.size(); ++column) {
      EXPECT_NEAR(intervals[column].low, given.at("intervals").at(column).at(0).get<double>(), 1e-12);
      EXPECT_NEAR(intervals[column].high, given.at("intervals").at(column).at(1).get<double>(), 1e-12);
    }
  }
}

// Differences as of ROUGE: many zeros, few large ones, skewed. The true mean must lie in 93 to 97 % of the
// intervals. (A count over 1,000 intervals has a standard deviation of 0.7 %; the numbers never change.)
TEST(Bootstrap, NineteenOfTwentyIntervalsHoldTheTruth) {
  constexpr int kTrials = 1000, kDocuments = 200;
  const double truth[] = {0.1 * 0.4, 0, 0.01};
  std::mt19937_64 random(5);  // its numbers are the same everywhere, unlike those of std's distributions
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  int holds[3] = {};
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<ScoreRow> rows(kDocuments);
    for (auto& [rare, even, skewed] : rows) {
      rare = uniform() < 0.4 ? 0.2 * uniform() : 0;
      even = uniform() - uniform();
      skewed = -0.01 * std::log(1 - uniform());
    }
    const auto intervals = bootstrap_intervals(rows, 400, static_cast<uint64_t>(trial));
    for (size_t column = 0; column < 3; ++column)
      holds[column] += intervals[column].low <= truth[column] && truth[column] <= intervals[column].high;
  }
  for (const int count : holds) {
    EXPECT_GE(count, kTrials * 93 / 100);
    EXPECT_LE(count, kTrials * 97 / 100);
  }
}

}  // namespace
}  // namespace ripstop
