#include "train/generate/generate.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/core/error.h"
#include "tests/expect_error.h"
#include "tests/train/generate/listed_prompts.h"

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

// The model of next_token with a cache. Checks that the loop's calls keep the contract.
class CachedModel {
 public:
  explicit CachedModel(const GenerateOptions& options) : options_(options) {}

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
  GenerateOptions options_;
  std::map<int64_t, Ids> cache_;
  int64_t prompt_calls_ = 0;
  int64_t step_calls_ = 0;
  int64_t most_at_once_ = 0;
};

GenerateOptions greedy(int64_t slots, int64_t prefill_tokens, int64_t max_new_tokens) {
  return {.slots = slots,
          .context = 64,
          .prefill_tokens = prefill_tokens,
          .ids = kVocabulary,
          .end_tokens = {kEnd},
          .settings = {.max_new_tokens = max_new_tokens}};
}

struct Generation {
  std::vector<Continuation> continuations;
  int64_t prompt_calls = 0;
  int64_t step_calls = 0;
  int64_t most_at_once = 0;
};

Generation generate(const GenerateOptions& options, const std::vector<Ids>& prompts) {
  CachedModel model(options);
  Generation result;
  ripstop::generate(
      options, ListedPrompts(prompts),
      {.best = [&](std::span<const SlotTokens> items) { return model.append(items); },
       .logits = [&](std::span<const SlotTokens>) -> std::span<const LogitRow> {
         ADD_FAILURE() << "no logits are needed";
         return {};
       }},
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

TEST(Generate, EqualsOneSequenceAtATimeWhateverTheBatch) {
  const std::vector<Ids> prompts = prompts_of_many_lengths(60);
  for (int64_t slots : {1, 2, 7, 64})
    for (int64_t prefill_tokens : {64, 100, 5000}) {
      const GenerateOptions options = greedy(slots, prefill_tokens, 30);
      const Generation got = generate(options, prompts);
      ASSERT_EQ(got.continuations.size(), prompts.size());
      int64_t ended = 0;
      for (size_t i = 0; i < prompts.size(); ++i) {
        const Continuation expected = alone(prompts[i], options.settings.max_new_tokens);
        EXPECT_EQ(got.continuations[i].tokens, expected.tokens)
            << "prompt " << i << ", " << slots << " slots";
        EXPECT_EQ(got.continuations[i].ended, expected.ended);
        ended += expected.ended ? 1 : 0;
      }
      EXPECT_GT(ended, 5);
      EXPECT_LT(ended, 55);
    }
}

TEST(Generate, FillsASlotAsSoonAsItIsFree) {
  const std::vector<Ids> prompts = prompts_of_many_lengths(60);
  const Generation got = generate(greedy(6, 5000, 30), prompts);
  EXPECT_EQ(got.most_at_once, 6);
  // Without continuous batching, each group of six would take one step for each token of its longest
  // continuation, except the first token, which comes with the prompt.
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

TEST(Generate, RunsPromptsTogetherAsFarAsOneCallTakes) {
  const std::vector<Ids> prompts(8, Ids(20, 5));
  EXPECT_EQ(generate(greedy(8, 160, 5), prompts).prompt_calls, 1);
  EXPECT_EQ(generate(greedy(8, 159, 5), prompts).prompt_calls, 2);
}

TEST(Generate, CountsTheEndTokenAmongTheNew) {
  const GenerateOptions options = greedy(2, 64, 1);
  const std::vector<Ids> prompts = prompts_of_many_lengths(200);
  const Generation got = generate(options, prompts);
  int64_t ended = 0;
  for (const Continuation& continuation : got.continuations) {
    EXPECT_EQ(continuation.tokens.size(), continuation.ended ? 0u : 1u);
    ended += continuation.ended ? 1 : 0;
  }
  EXPECT_GT(ended, 0);
}

TEST(Generate, OfNothingIsNothing) {
  const Generation got = generate(greedy(2, 64, 5), {});
  EXPECT_EQ(got.prompt_calls + got.step_calls, 0);
  EXPECT_TRUE(got.continuations.empty());
}

TEST(Generate, RefusesAPromptThatLeavesNoRoom) {
  EXPECT_NO_THROW(generate(greedy(2, 64, 5), {Ids(59, 1)}));
  EXPECT_THROW(generate(greedy(2, 64, 5), {Ids(60, 1)}), Error);
  EXPECT_THROW(generate(greedy(2, 64, 5), {Ids()}), Error);
}

// A model whose logits depend on all tokens so far, with a cache of beams and places.
class LogitModel {
 public:
  std::span<const LogitRow> append(std::span<const SlotTokens> items) {
    logits_.clear();
    for (const SlotTokens& item : items) {
      std::map<int64_t, int32_t>& cache = cache_[item.slot];
      for (size_t i = 0; i < item.tokens.size(); ++i)
        cache[item.places.empty() ? item.first_position + static_cast<int64_t>(i) : item.places.back()] =
            item.tokens[i];
      Ids sequence;
      const int64_t end = item.first_position + std::ssize(item.tokens);
      for (int64_t p = 0; p < end; ++p)
        sequence.push_back(cache[item.places.empty() || p < item.prompt
                                     ? p
                                     : item.places[static_cast<size_t>(p - item.prompt)]]);
      std::vector<float>& logits = logits_.emplace_back();
      for (int32_t id = 0; id < kVocabulary + 5; ++id) {
        sequence.push_back(id);
        logits.push_back(static_cast<float>(hash(sequence) % 1000) / 250.0F);
        sequence.pop_back();
      }
    }
    rows_.clear();
    for (const std::vector<float>& logits : logits_)
      rows_.push_back({.logits = logits, .largest = 4, .log_sum = 2});
    return rows_;
  }

 private:
  static uint32_t hash(const Ids& tokens) {
    uint32_t state = 2166136261u;
    for (const int32_t token : tokens) state = (state ^ static_cast<uint32_t>(token)) * 16777619u;
    return (state ^ state >> 15) * 2654435761u >> 7;
  }
  std::map<int64_t, std::map<int64_t, int32_t>> cache_;
  std::vector<std::vector<float>> logits_;
  std::vector<LogitRow> rows_;
};

std::vector<Ids> texts(const GenerateOptions& options, int64_t first_number = 0) {
  LogitModel model;
  std::vector<Ids> written;
  ripstop::generate(options, ListedPrompts(prompts_of_many_lengths(40), first_number + 1),
                    {.best = [](std::span<const SlotTokens>) -> Ids {
                       ADD_FAILURE() << "the best alone are not enough";
                       return {};
                     },
                     .logits = [&](std::span<const SlotTokens> items) { return model.append(items); }},
                    [&](Continuation continuation) { written.push_back(std::move(continuation.tokens)); });
  return written;
}

std::vector<Ids> texts(int64_t slots, const GenerationSettings& settings, int64_t first_number = 0) {
  GenerateOptions options = greedy(slots, 100, 0);
  options.settings = settings;
  return texts(options, first_number);
}

// `text` up to the first of `ends`.
Ids cut_at(const Ids& text, const std::set<int32_t>& ends) {
  return {text.begin(),
          std::find_if(text.begin(), text.end(), [&](int32_t id) { return ends.contains(id); })};
}

TEST(Generate, EndsAtTheFirstOfSeveralEndTokens) {
  GenerateOptions options = greedy(4, 100, 20);
  const std::vector<Ids> prompts = prompts_of_many_lengths(40);
  options.end_tokens = {};
  const Generation whole = generate(options, prompts);
  options.end_tokens = {2, 7, 11};
  const Generation cut = generate(options, prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(cut.continuations[i].tokens, cut_at(whole.continuations[i].tokens, {2, 7, 11}));
    EXPECT_EQ(cut.continuations[i].ended, cut.continuations[i].tokens != whole.continuations[i].tokens);
  }
  // One end token lies above the tokenizer's pieces, and two ids below it are never written.
  options.ids = kVocabulary + 3;
  options.never = {kVocabulary, kVocabulary + 1};
  for (const GenerationSettings& settings :
       {GenerationSettings{.no_repeat_ngram_size = 9, .max_new_tokens = 20},
        GenerationSettings{.max_new_tokens = 20, .do_sample = true, .top_k = 9}}) {
    options.settings = settings;
    options.end_tokens = {};
    const std::vector<Ids> all = texts(options);
    options.end_tokens = {2, 7, kVocabulary + 2};
    std::vector<Ids> expected;
    for (const Ids& text : all) expected.push_back(cut_at(text, {2, 7, kVocabulary + 2}));
    EXPECT_EQ(texts(options), expected);
    EXPECT_NE(expected, all);
    EXPECT_TRUE(std::ranges::none_of(all, [](const Ids& text) {
      return std::ranges::count(text, kVocabulary) + std::ranges::count(text, kVocabulary + 1) > 0;
    }));
  }
  options.settings = {.min_new_tokens = 20, .max_new_tokens = 20};
  for (const Ids& text : texts(options)) EXPECT_EQ(text.size(), 20U) << "no end token may come";
}

TEST(Generate, TextsDoNotDependOnTheBatch) {
  for (const GenerationSettings& settings :
       {GenerationSettings{.num_beams = 3, .max_new_tokens = 20},
        GenerationSettings{.min_new_tokens = 4, .max_new_tokens = 20},
        GenerationSettings{
            .max_new_tokens = 20, .do_sample = true, .temperature = 0.7, .top_k = 9, .top_p = 0.9}}) {
    const std::vector<Ids> alone = texts(1, settings);
    ASSERT_EQ(alone.size(), 40U);
    EXPECT_EQ(texts(2, settings), alone);
    EXPECT_EQ(texts(7, settings), alone);
    EXPECT_EQ(texts(64, settings), alone);
    for (const Ids& text : alone)
      for (const int32_t id : text) EXPECT_LT(id, kVocabulary) << "the tokenizer has no such piece";
  }
}

// An exception in a thread that chooses tokens must not end the process.
TEST(Generate, WhatAThreadThrowsReachesTheCaller) {
  for (const GenerationSettings& settings : {GenerationSettings{.num_beams = 3, .max_new_tokens = 20},
                                             GenerationSettings{.min_new_tokens = 4, .max_new_tokens = 20},
                                             GenerationSettings{.max_new_tokens = 20, .do_sample = true}}) {
    GenerateOptions options = greedy(5, 100, 0);
    options.settings = settings;
    LogitModel model;
    std::vector<LogitRow> cut;
    const auto logits = [&](std::span<const SlotTokens> items) -> std::span<const LogitRow> {
      const std::span<const LogitRow> whole = model.append(items);
      cut.assign(whole.begin(), whole.end());
      // Makes the row of the fourth text too short.
      if (items.size() > 3) cut[3].logits = cut[3].logits.first(kVocabulary - 1);
      return cut;
    };
    const auto best = [](std::span<const SlotTokens>) { return Ids(); };
    expect_error(
        [&] {
          ripstop::generate(options, ListedPrompts(prompts_of_many_lengths(9)),
                            {.best = best, .logits = logits}, [](const Continuation&) {});
        },
        ExitCode::kBug, "logits of 22 ids, expected 23");
  }
}

TEST(Generate, DrawsByTheNumberOfThePromptAndTheSeed) {
  GenerationSettings settings{.max_new_tokens = 20, .do_sample = true};
  const std::vector<Ids> first = texts(7, settings);
  EXPECT_NE(texts(7, settings, 1000), first);
  settings.seed = 2;
  EXPECT_NE(texts(7, settings), first);
}

TEST(Generate, BansRepetitionsAndShortTexts) {
  const std::vector<Ids> written =
      texts(7, {.no_repeat_ngram_size = 1, .min_new_tokens = 12, .max_new_tokens = 20});
  for (const Ids& text : written) {
    EXPECT_EQ(std::set<int32_t>(text.begin(), text.end()).size(), text.size());
    EXPECT_GE(text.size(), 12U);
  }
}

}  // namespace
}  // namespace ripstop
