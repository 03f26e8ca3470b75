#include "train/evaluate/rouge.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/test_files.h"

namespace ripstop {
namespace {

using nlohmann::json;

// `expected` = [precision, recall, fmeasure], in the unit of `score`.
void expect_near(const RougeScore& score, const json& expected, double tolerance, const std::string& what) {
  EXPECT_NEAR(score.precision, expected.at(0).get<double>(), tolerance) << what << " precision";
  EXPECT_NEAR(score.recall, expected.at(1).get<double>(), tolerance) << what << " recall";
  EXPECT_NEAR(score.fmeasure, expected.at(2).get<double>(), tolerance) << what << " fmeasure";
}

RougeScore percent(const RougeScore& score) {
  return {100 * score.precision, 100 * score.recall, 100 * score.fmeasure};
}

// A block of golden/rouge.json, {"rouge1": {"P", "R", "F"}, ...} on 0..100.
void expect_block(const RougeScores& scores, const json& block, double tolerance, const std::string& what) {
  const auto triple = [&](const char* name) {
    return json{block.at(name).at("P"), block.at(name).at("R"), block.at(name).at("F")};
  };
  expect_near(percent(scores.rouge1), triple("rouge1"), tolerance, what + " rouge1");
  expect_near(percent(scores.rouge2), triple("rouge2"), tolerance, what + " rouge2");
  expect_near(percent(scores.rouge_l), triple("rougeL"), tolerance, what + " rougeL");
}

std::vector<std::string> lines_of_member(const std::filesystem::path& archive, const std::string& member) {
  const std::string command = "tar -xzOf '" + archive.string() + "' '" + member + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> lines(1);
  for (int c; (c = std::fgetc(pipe.get())) != EOF;) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += static_cast<char>(c);
  }
  lines.pop_back();
  return lines;
}

TEST(Rouge, EqualsGooglesRougeScore) {
  std::ifstream file(golden_file("rouge_pairs.jsonl"));
  int64_t pairs = 0;
  for (std::string line; std::getline(file, line); ++pairs) {
    const json pair = json::parse(line);
    const std::string reference = pair.at("reference"), candidate = pair.at("candidate");
    for (const bool stems : {true, false}) {
      const RougeScores scores = rouge(reference, candidate, stems);
      const json& expected = stems ? pair : pair.at("unstemmed");
      const std::string what = "'" + reference + "' / '" + candidate + "'" + (stems ? "" : " unstemmed");
      expect_near(scores.rouge1, expected.at("rouge1"), 1e-12, what + " rouge1");
      expect_near(scores.rouge2, expected.at("rouge2"), 1e-12, what + " rouge2");
      expect_near(scores.rouge_l, expected.at("rougeL"), 1e-12, what + " rougeL");
    }
  }
  EXPECT_GT(pairs, 50);
}

// Worked by hand: rouge1 counts each word as often as both texts have it; rougeL needs the order.
TEST(Rouge, CountsByHand) {
  const RougeScores scores = rouge("north wind and north sun", "north and north and wind");
  EXPECT_DOUBLE_EQ(scores.rouge1.recall, 4.0 / 5);     // north twice, and, wind
  EXPECT_DOUBLE_EQ(scores.rouge2.precision, 1.0 / 4);  // "and north"
  EXPECT_DOUBLE_EQ(scores.rouge_l.fmeasure, 3.0 / 5);  // north and north
}

TEST(Rouge, WordsAreStemmedFromFourLettersOn) {
  EXPECT_EQ(rouge_words("His cats' ages: 3.5, DYING!"),
            (std::vector<std::string>{"his", "cat", "age", "3", "5", "die"}));
}

TEST(Rouge, MeanIsOverExamples) {
  RougeMean mean;
  EXPECT_EQ(mean.mean().rouge1.fmeasure, 0);
  mean.add(rouge("a b", "a b"));
  mean.add(rouge("a b", "c"));
  mean.add(rouge("a b c d", "a"));
  EXPECT_EQ(mean.examples(), 3);
  EXPECT_DOUBLE_EQ(mean.mean().rouge1.precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(mean.mean().rouge1.recall, 1.25 / 3);
  EXPECT_DOUBLE_EQ(mean.mean().rouge1.fmeasure, 1.4 / 3);
  EXPECT_DOUBLE_EQ(mean.mean().rouge2.recall, 1.0 / 3);
}

TEST(Rouge, ReferencesWithoutAWordAreCounted) {
  RougeMean mean;
  mean.add(rouge("a b", "c"));
  EXPECT_EQ(mean.note(), "");
  mean.add(rouge("\u092f\u0939", "\u092f\u0939"));
  EXPECT_EQ(mean.note().find("1 of 2 references have no letter from a to z and no digit: "), 0u)
      << mean.note();
}

TEST(Rouge, EqualsTheSharedPairs) {
  const auto path = shared_file("golden/rouge.json");
  if (!path) GTEST_SKIP() << "no shared/golden/rouge.json beside the checkout";
  const json pairs = json::parse(read_text(*path)).at("pairs");
  EXPECT_GE(pairs.size(), 7u);
  for (const json& pair : pairs) {
    const std::string system = pair.at("system");
    expect_block(rouge(pair.at("reference").get<std::string>(), system), pair.at("nltk_porter"), 1e-3,
                 system);
  }
}

TEST(Rouge, EqualsThePublishedXsumTable) {
  const auto golden = shared_file("golden/rouge.json");
  const auto archive = shared_file("data/xsum_rouge_reference/xsum-model-predictions.tar.gz");
  if (!golden || !archive) GTEST_SKIP() << "no shared/golden and shared/data beside the checkout";
  const auto references = lines_of_member(*archive, "xsum-model-predictions/gold-test-sentences.txt");
  const json systems = json::parse(read_text(*golden)).at("systems");
  EXPECT_EQ(systems.size(), 5u);
  for (const json& expected : systems) {
    const std::string system = expected.at("system");
    const auto candidates =
        lines_of_member(*archive, "xsum-model-predictions/" + system + "-test-output.txt");
    ASSERT_EQ(candidates.size(), references.size()) << system;
    RougeMean mean;
    for (size_t i = 0; i < references.size(); ++i) mean.add(rouge(references[i], candidates[i]));
    EXPECT_EQ(mean.examples(), expected.at("pairs").get<int64_t>());
    expect_block(mean.mean(), expected.at("nltk_porter"), 1e-3, system);
    expect_block(mean.mean(), expected.at("official"), 0.5, system + " official");
  }
}

}  // namespace
}  // namespace ripstop
