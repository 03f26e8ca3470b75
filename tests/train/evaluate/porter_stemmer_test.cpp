#include "train/evaluate/porter_stemmer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_files.h"

namespace ripstop {
namespace {

TEST(PorterStemmer, GivesTheStemsOfNltk) {
  std::ifstream file(golden_file("porter_stems.txt"));
  int64_t words = 0;
  for (std::string word, stem; file >> word >> stem; ++words) EXPECT_EQ(porter_stem(word), stem) << word;
  EXPECT_GT(words, 1000);
}

TEST(PorterStemmer, LeavesShortWordsAndFigures) {
  for (const char* word : {"", "a", "as", "is", "2019", "9", "1970"}) EXPECT_EQ(porter_stem(word), word);
}

TEST(PorterStemmer, GivesTheSharedStems) {
  const auto path = shared_file("golden/rouge.json");
  if (!path) GTEST_SKIP() << "no shared/golden/rouge.json beside the checkout";
  const auto stems = nlohmann::json::parse(read_text(*path)).at("nltk_porter_stems");
  EXPECT_GE(stems.size(), 70u);
  for (const auto& [word, stem] : stems.items())
    EXPECT_EQ(porter_stem(word), stem.get<std::string>()) << word;
}

}  // namespace
}  // namespace ripstop
