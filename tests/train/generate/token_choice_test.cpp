#include "train/generate/token_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t kChoiceEnd = 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Ids banned(int64_t size, const Ids& tokens, int64_t prompt = 0, int64_t min_new_tokens = 0) {
  return banned_tokens({.no_repeat_ngram_size = size, .min_new_tokens = min_new_tokens}, {tokens, prompt},
                       Ids{kChoiceEnd});
}

TEST(TokenChoice, BansWhatFollowedTheLastTokensBefore) {
  const Ids tokens{5, 6, 7, 5, 6, 9, 5, 6};
  EXPECT_EQ(banned(3, tokens), (Ids{7, 9}));
  EXPECT_EQ(banned(2, tokens), (Ids{7, 9}));
  EXPECT_EQ(banned(4, tokens), Ids{}) << "9 5 6 came once";
  EXPECT_EQ(banned(1, {5, 8, 4}), (Ids{4, 5, 8})) << "every token came before";
  EXPECT_EQ(banned(0, tokens), Ids{});
  EXPECT_EQ(banned(9, tokens), Ids{});
  EXPECT_EQ(banned(2, {5, 5}), Ids{5});
  EXPECT_EQ(banned(3, tokens, 6), banned(3, tokens)) << "the prompt counts";
}

TEST(TokenChoice, BansTheEndBeforeTheShortestLength) {
  EXPECT_EQ(banned(0, {5, 6, 7}, 1, 3), Ids{kChoiceEnd});
  EXPECT_EQ(banned(0, {5, 6, 7, 8}, 1, 3), Ids{});
  EXPECT_EQ(banned(2, {5, 1, 5}, 1, 3), (Ids{1, kChoiceEnd})) << "ascending";
}

TEST(TokenChoice, TheBestComeByLogitThenById) {
  const std::vector<float> logits{1, 3, 3, -kInfinity, 5, std::nanf(""), 2};
  const auto ids = [&](const Ids& banned, int64_t count) {
    Ids found;
    for (const ScoredToken& token : best_tokens(logits, banned, count)) found.push_back(token.id);
    return found;
  };
  EXPECT_EQ(ids({}, 1), Ids{4});
  EXPECT_EQ(ids({}, 2), (Ids{4, 1}));
  EXPECT_EQ(ids({}, 3), (Ids{4, 1, 2}));
  EXPECT_EQ(ids({1, 4}, 2), (Ids{2, 6}));
  EXPECT_EQ(ids({}, 9), (Ids{4, 1, 2, 6, 0})) << "neither minus infinity nor NaN";
  EXPECT_EQ(ids({0, 1, 2, 4, 6}, 9), Ids{});
}

std::map<int32_t, double> drawable(const GenerationSettings& settings, const std::vector<float>& logits,
                                   const Ids& banned = {}) {
  std::map<int32_t, double> probabilities;
  double sum = 0;
  for (const auto& [id, logit] : drawable_tokens(settings, logits, banned))
    sum += probabilities[id] = std::exp(double{logit});
  for (auto& [id, probability] : probabilities) probability /= sum;
  return probabilities;
}

Ids keys(const std::map<int32_t, double>& probabilities) {
  Ids ids;
  for (const auto& [id, probability] : probabilities) ids.push_back(id);
  return ids;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 3);
  return logits;
}

TEST(TokenChoice, KeepsTheTopKWithAllEqualsOfTheLast) {
  const std::vector<float> logits{1, 4, 2, 2, 3};
  EXPECT_EQ(keys(drawable({.top_k = 1}, logits)), Ids{1});
  EXPECT_EQ(keys(drawable({.top_k = 3}, logits)), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(keys(drawable({.top_k = 50}, logits)), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(keys(drawable({.top_k = 2}, logits, {1})), (Ids{2, 3, 4})) << "after the bans";
}

TEST(TokenChoice, KeepsTheSmallestSetThatReachesTopP) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.05, 0.25, 0.2});
  EXPECT_EQ(keys(drawable({.top_p = 0.01}, logits)), Ids{1}) << "one always stays";
  EXPECT_EQ(keys(drawable({.top_p = 0.39}, logits)), Ids{1});
  EXPECT_EQ(keys(drawable({.top_p = 0.41}, logits)), (Ids{1, 3}));
  EXPECT_EQ(keys(drawable({.top_p = 0.8}, logits)), (Ids{1, 3, 4}));
  EXPECT_EQ(keys(drawable({.top_p = 0.949}, logits)), (Ids{0, 1, 3, 4}));
  EXPECT_EQ(keys(drawable({.top_p = 0.951}, logits)), (Ids{0, 1, 2, 3, 4}));
  // Shares among the top k: 0.4 / 0.65 is above 0.6.
  EXPECT_EQ(keys(drawable({.top_k = 2, .top_p = 0.6}, logits)), Ids{1});
  EXPECT_EQ(keys(drawable({.top_p = 0.6}, logits_of({0.25, 0.25, 0.25, 0.25}))), (Ids{0, 1, 2}))
      << "the lowest of equals stay";
}

TEST(TokenChoice, TemperatureScalesLogitsBeforeTopP) {
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.25});
  const std::map<int32_t, double> cold = drawable({.temperature = 0.5}, logits);
  EXPECT_NEAR(cold.at(0), 0.25 / 0.375, 1e-6);
  EXPECT_NEAR(cold.at(2), 0.0625 / 0.375, 1e-6);
  EXPECT_EQ(keys(drawable({.temperature = 0.5, .top_p = 0.6}, logits)), Ids{0});
  EXPECT_EQ(keys(drawable({.temperature = 1.0, .top_p = 0.6}, logits)), (Ids{0, 1}));
}

// Chi-square over 20,000 draws; with 4 degrees of freedom it is below 18.5 in 99.9 % of all tests.
TEST(TokenChoice, DrawsByProbabilityAndByKey) {
  const GenerationSettings settings{
      .do_sample = true, .temperature = 0.8, .top_k = 6, .top_p = 0.97, .seed = 3};
  const std::vector<float> logits = logits_of({0.1, 0.3, 0.02, 0.25, 0.15, 0.17, 0.01});
  const std::map<int32_t, double> expected = drawable(settings, logits, {3});
  ASSERT_EQ(expected.size(), 4U);
  for (const bool by_document : {false, true}) {
    std::map<int32_t, int64_t> count;
    constexpr int64_t kDraws = 20000;
    for (int64_t i = 0; i < kDraws; ++i)
      ++count[*draw_token(settings, logits, Ids{3}, {by_document ? i : 7, by_document ? 7 : i})];
    double chi_square = 0;
    for (const auto& [id, probability] : expected) {
      const double wanted = kDraws * probability, difference = static_cast<double>(count[id]) - wanted;
      chi_square += difference * difference / wanted;
    }
    EXPECT_EQ(count.size(), expected.size());
    EXPECT_LT(chi_square, 18.5) << (by_document ? "documents" : "positions");
  }
  Ids first, again, other_seed;
  GenerationSettings other = settings;
  other.seed = 4;
  for (int64_t i = 0; i < 50; ++i) {
    first.push_back(*draw_token(settings, logits, {}, {1, i}));
    other_seed.push_back(*draw_token(other, logits, {}, {1, i}));
  }
  for (int64_t i = 0; i < 50; ++i) again.push_back(*draw_token(settings, logits, {}, {1, i}));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other_seed);
}

TEST(TokenChoice, DrawsNothingOfNothing) {
  EXPECT_FALSE(draw_token({.do_sample = true}, std::vector<float>{1, 2}, Ids{0, 1}, {}));
}

}  // namespace
}  // namespace ripstop
