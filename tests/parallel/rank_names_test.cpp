#include "parallel/rank_names.h"
#include "tests/expect_has.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(RankNames, RangesAreShort) {
  EXPECT_EQ(ranks_text({0, 1, 2, 5}), "ranks 0-2,5");
  EXPECT_EQ(ranks_text({7}), "rank 7");
  EXPECT_EQ(ranks_text({7, 9}), "ranks 7,9");
}

TEST(RankNames, RanksOfAHostStandTogether) {
  const std::vector<std::string> hosts = {"n1", "n1", "n2", "n2", "n1"};
  EXPECT_EQ(ranks_and_hosts({0, 2, 3, 4}, hosts), "ranks 0,4 (n1), ranks 2-3 (n2)");
  EXPECT_EQ(ranks_and_hosts({9}, hosts), "rank 9 (?)");
  std::vector<std::string> many;
  std::vector<int64_t> all;
  for (int64_t r = 0; r < 100; ++r) {
    many.push_back("n" + std::to_string(r / 5));
    all.push_back(r);
  }
  EXPECT_HAS(ranks_and_hosts(all, many), "ranks 35-39 (n7) and 60 more");
}

}  // namespace
}  // namespace ripstop
