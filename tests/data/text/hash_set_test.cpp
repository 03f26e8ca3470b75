#include "data/text/hash_set.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(HashSetTest, RemembersWhatItSaw) {
  HashSet set;
  for (uint64_t i = 0; i < 10000; ++i) EXPECT_TRUE(set.insert(i * 0x9e3779b97f4a7c15ull + 7));
  for (uint64_t i = 0; i < 10000; ++i) EXPECT_FALSE(set.insert(i * 0x9e3779b97f4a7c15ull + 7));
  EXPECT_TRUE(set.insert(0));
  EXPECT_FALSE(set.insert(0));
}

}  // namespace
}  // namespace ripstop
