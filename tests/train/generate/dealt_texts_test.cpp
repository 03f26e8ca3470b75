#include "train/generate/write_texts.h"

#include <gtest/gtest.h>

#include "model/core/error.h"

namespace ripstop {
namespace {

using Texts = std::vector<std::string>;

TEST(DealtTexts, ComeTogetherInOrder) {
  const Texts texts = {"zero", "", "two:2", "3:three", std::string("fo\0ur", 5), "\n", "six"};
  for (size_t replicas = 1; replicas <= 9; ++replicas) {
    std::vector<Texts> dealt(replicas);
    for (size_t i = 0; i < texts.size(); ++i) dealt[i % replicas].push_back(texts[i]);
    EXPECT_EQ(merge_dealt(dealt), texts) << replicas << " replicas";
  }
}

TEST(DealtTexts, KeepEveryByteOnTheirWay) {
  const Texts texts = {"", std::string("fo\0ur", 5), "half a letter: \xc3", "\xff"};
  EXPECT_EQ(gather_dealt(*make_self_communicator("self"), 1, texts), texts);
}

TEST(DealtTexts, ThatCannotBeSoDealtAreRefused) {
  EXPECT_THROW(merge_dealt({{"a"}, {"b", "c"}}), Error);
  EXPECT_THROW(merge_dealt({{"a", "b", "c"}, {"d"}}), Error);
}

}  // namespace
}  // namespace ripstop
