#include "train/evaluate/degenerate.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

Degenerate signs(const std::string& summary, const std::string& document = "") {
  return find_degenerate({.id = "", .summary = summary, .reference = "", .document = document});
}

TEST(Degenerate, FourWordsThatComeTwice) {
  EXPECT_TRUE(signs("a b c d a b c d").repeats);
  EXPECT_TRUE(signs("x x x x x").repeats) << "they may overlap";
  EXPECT_TRUE(signs("see: a b\n c d, and a b c d, and").repeats);
  EXPECT_FALSE(signs("a b c d a b c e").repeats);
  EXPECT_FALSE(signs("x x x x").repeats);
  EXPECT_FALSE(signs("").repeats);
}

TEST(Degenerate, TheFirstSentence) {
  const std::string document = "Mr. Li won the race. He was glad.\nMore";
  EXPECT_TRUE(signs("Mr. Li won the race.", document).copies);
  EXPECT_TRUE(signs("Mr.  Li won\nthe race. And", document).copies);
  EXPECT_FALSE(signs("Mr. Li won the", document).copies);
  EXPECT_FALSE(signs("Mr. Li won a race.", document).copies);
  EXPECT_FALSE(signs("Li won the race.", document).copies);
  EXPECT_TRUE(signs("A headline has no full", "A headline has no\nfull stop").copies) << "a line ends it";
  for (const char* end : {"", " \nThe", "\r\nThe"})
    EXPECT_TRUE(signs("A headline has no stop", std::string("A headline has no") + end).copies) << end;
  EXPECT_FALSE(signs("Yes! No! Or", "Yes! No! Or what?").copies) << "less than four words are in many texts";
  EXPECT_FALSE(signs("", document).copies);
  EXPECT_FALSE(signs("a b c d.", "").copies);
}

TEST(Degenerate, Counts) {
  DegenerateCounts counts;
  counts.add({.at_limit = true, .empty = true});
  counts.add({.at_limit = false, .repeats = true, .copies = true});
  EXPECT_EQ(counts.at_limit, 1);
  EXPECT_EQ(counts.empty, 1);
  EXPECT_EQ(counts.repeats, 1);
  EXPECT_EQ(counts.copies, 1);
  EXPECT_TRUE(signs(" \n").empty);
  EXPECT_FALSE(signs("a").empty);
}

}  // namespace
}  // namespace ripstop
