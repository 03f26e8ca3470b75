#include "train/generate/greedy.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/core/error.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kEnd = 2;
constexpr int32_t kVocabulary = 23;

// A model whose next token depends only on all tokens so far. One token of 23, on average, is the end token.
int32_t next_token(const Ids& tokens) {
  uint32_t state = 2166136261u;
  for (int32_t token : tokens) state = (state ^ static_cast<uint32_t>(token)) * 16777619u;
  return static_cast<int32_t>((state >> 8) % kVocabulary);
}

// This model with a cache in front of it. It checks what the loop promises about its calls.
class CachedModel {
 public:
  explicit CachedModel(const GreedyOptions& options) : options_(options) {}

  Ids append(std::span<const SlotTokens> items) {
    ++(items.front().first_position == 0 ? prompt_calls_ : step_calls_);
    std::set<int64_t> slots;
    int64_t tokens = 0;
    Ids next;
    for (const SlotTokens& item : items) {
      EXPECT_TRUE(item.slot >= 0 && item.slot < options_.slots);
      EXPECT_TRUE(slots.insert(item.slot).second);
      EXPECT_FALSE(item.tokens.empty());
      EXPECT_EQ(item.first_position == 0, items.front().first_position == 0);
      EXPECT_TRUE(item.first_position == 0 || item.tokens.size() == 1);
      tokens += std::ssize(item.tokens);
      Ids& cached = cache_[item.slot];
      if (item.first_position == 0) cached.clear();
      EXPECT_EQ(std::ssize(cached), item.first_position);
      cached.insert(cached.end(), item.tokens.begin(), item.tokens.end());
      EXPECT_LE(std::ssize(cached), options_.context);
      next.push_back(next_token(cached));
    }
    EXPECT_LE(tokens, options_.prefill_tokens);
    most_at_once_ = std::max(most_at_once_, std::ssize(items));
    return next;
  }

  int64_t prompt_calls() const { return prompt_calls_; }
  int64_t step_calls() const { return step_calls_; }
  int64_t most_at_once() const { return most_at_once_; }

 private:
  GreedyOptions options_;
  std::map<int64_t, Ids> cache_;
  int64_t prompt_calls_ = 0;
  int64_t step_calls_ = 0;
  int64_t most_at_once_ = 0;
};

struct Generation {
  std::vector<Continuation> continuations;
  int64_t prompt_calls = 0;
  int64_t step_calls = 0;
  int64_t most_at_once = 0;
};

Generation generate(const GreedyOptions& options, const std::vector<Ids>& prompts) {
  CachedModel model(options);
  Generation result;
  size_t asked = 0;
  generate_greedy(
      options,
      [&]() -> std::optional<Ids> {
        if (asked == prompts.size()) return std::nullopt;
        return prompts[asked++];
      },
      [&](std::span<const SlotTokens> items) { return model.append(items); },
      [&](Continuation continuation) { result.continuations.push_back(std::move(continuation)); });
  result.prompt_calls = model.prompt_calls();
  result.step_calls = model.step_calls();
  result.most_at_once = model.most_at_once();
  return result;
}

Continuation alone(Ids tokens, int64_t max_new_tokens) {
  Continuation result;
  while (std::ssize(result.tokens) < max_new_tokens) {
    const int32_t next = next_token(tokens);
    result.ended = next == kEnd;
    if (result.ended) break;
    result.tokens.push_back(next);
    tokens.push_back(next);
  }
  return result;
}

std::vector<Ids> prompts_of_many_lengths(int64_t count) {
  std::vector<Ids> prompts;
  for (int32_t i = 0; i < count; ++i) {
    Ids prompt(static_cast<size_t>(1 + i * 7 % 31), i);
    prompt.front() = 1;
    prompts.push_back(prompt);
  }
  return prompts;
}

TEST(GenerateGreedy, EqualsOneSequenceAtATimeWhateverTheBatch) {
  const std::vector<Ids> prompts = prompts_of_many_lengths(60);
  for (int64_t slots : {1, 2, 7, 64})
    for (int64_t prefill_tokens : {64, 100, 5000}) {
      const GreedyOptions options{slots, 64, prefill_tokens, 30, kEnd};
      const Generation got = generate(options, prompts);
      ASSERT_EQ(got.continuations.size(), prompts.size());
      int64_t ended = 0;
      for (size_t i = 0; i < prompts.size(); ++i) {
        const Continuation expected = alone(prompts[i], options.max_new_tokens);
        EXPECT_EQ(got.continuations[i].tokens, expected.tokens)
            << "prompt " << i << ", " << slots << " slots";
        EXPECT_EQ(got.continuations[i].ended, expected.ended);
        ended += expected.ended ? 1 : 0;
      }
      EXPECT_GT(ended, 5);
      EXPECT_LT(ended, 55);
    }
}

TEST(GenerateGreedy, FillsASlotAsSoonAsItIsFree) {
  const std::vector<Ids> prompts = prompts_of_many_lengths(60);
  const Generation got = generate({6, 64, 5000, 30, kEnd}, prompts);
  EXPECT_EQ(got.most_at_once, 6);
  // Without continuous batching, each group of six would take as many steps as its longest continuation has
  // tokens, less the token that comes with the prompt.
  int64_t steps_in_groups = 0;
  for (size_t i = 0; i < prompts.size(); i += 6) {
    int64_t longest = 0;
    for (size_t k = i; k < i + 6; ++k) {
      const Continuation expected = alone(prompts[k], 30);
      longest = std::max(longest, std::ssize(expected.tokens) + (expected.ended ? 0 : -1));
    }
    steps_in_groups += longest;
  }
  EXPECT_LT(got.step_calls, 0.8 * static_cast<double>(steps_in_groups));
}

TEST(GenerateGreedy, RunsPromptsTogetherAsFarAsOneCallTakes) {
  const std::vector<Ids> prompts(8, Ids(20, 5));
  EXPECT_EQ(generate({8, 64, 160, 5, kEnd}, prompts).prompt_calls, 1);
  EXPECT_EQ(generate({8, 64, 159, 5, kEnd}, prompts).prompt_calls, 2);
}

TEST(GenerateGreedy, CountsTheEndTokenAmongTheNew) {
  const GreedyOptions options{2, 64, 64, 1, kEnd};
  const std::vector<Ids> prompts = prompts_of_many_lengths(200);
  const Generation got = generate(options, prompts);
  int64_t ended = 0;
  for (const Continuation& continuation : got.continuations) {
    EXPECT_EQ(continuation.tokens.size(), continuation.ended ? 0u : 1u);
    ended += continuation.ended ? 1 : 0;
  }
  EXPECT_GT(ended, 0);
}

TEST(GenerateGreedy, OfNothingIsNothing) {
  const Generation got = generate({2, 64, 64, 5, kEnd}, {});
  EXPECT_EQ(got.prompt_calls + got.step_calls, 0);
  EXPECT_TRUE(got.continuations.empty());
}

TEST(GenerateGreedy, RefusesAPromptThatLeavesNoRoom) {
  EXPECT_NO_THROW(generate({2, 64, 64, 5, kEnd}, {Ids(59, 1)}));
  EXPECT_THROW(generate({2, 64, 64, 5, kEnd}, {Ids(60, 1)}), Error);
  EXPECT_THROW(generate({2, 64, 64, 5, kEnd}, {Ids()}), Error);
}

}  // namespace
}  // namespace ripstop
