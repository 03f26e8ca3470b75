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
    Texts replies;
    for (const Texts& own : dealt) replies.push_back(packed(own));
    EXPECT_EQ(merge_dealt(replies), texts) << replicas << " replicas";
  }
}

TEST(DealtTexts, ThatCannotBeSoDealtAreRefused) {
  EXPECT_THROW(merge_dealt({packed({"a"}), packed({"b", "c"})}), Error);
  EXPECT_THROW(merge_dealt({packed({"a", "b", "c"}), packed({"d"})}), Error);
  EXPECT_THROW(merge_dealt({"9:short"}), Error);
  EXPECT_THROW(merge_dealt({"x"}), Error);
  EXPECT_THROW(merge_dealt({"12"}), Error);
}

}  // namespace
}  // namespace ripstop
