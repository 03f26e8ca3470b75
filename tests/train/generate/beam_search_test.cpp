#include "train/generate/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t kSearchEnd = 0;

// The logits after a sequence, as a function of all its tokens.
std::vector<float> logits_after(const Ids& tokens, int64_t vocabulary) {
  std::vector<float> logits;
  for (int64_t id = 0; id < vocabulary; ++id) {
    uint64_t state = static_cast<uint64_t>(id) * 77 + 1;
    for (const int32_t token : tokens)
      state = (state ^ static_cast<uint64_t>(token + 1)) * 0x9E3779B97F4A7C15U;
    logits.push_back(static_cast<float>((state ^ state >> 29) * 0xBF58476D1CE4E5B9U >> 40) * 0x1p-22F);
  }
  return logits;
}

LogitRow row_of(const std::vector<float>& logits) {
  LogitRow row{.logits = logits, .largest = *std::max_element(logits.begin(), logits.end())};
  float sum = 0;
  for (const float logit : logits) sum += std::exp(logit - row.largest);
  row.log_sum = std::log(sum);
  return row;
}

bool is_end(const GenerationSettings& settings, int32_t id) {
  return id == kSearchEnd || std::ranges::count(settings.eos_token_id, id) > 0;
}

GenerateOptions options_of(const GenerationSettings& settings, int64_t vocabulary) {
  return {.slots = 1,
          .context = 100,
          .prefill_tokens = 100,
          .ids = vocabulary,
          .end_tokens = settings.eos_token_id.empty() ? Ids{kSearchEnd} : settings.eos_token_id,
          .settings = settings};
}

// Runs a search with a cache that has one token in each place, instead of keys and values.
struct Search {
  explicit Search(const GenerationSettings& settings, int64_t vocabulary, int64_t logit_count = 0) {
    const GenerateOptions options = options_of(settings, vocabulary);
    BeamSearch search(options, {{3, 1, 2}, 0});
    std::map<int64_t, int32_t> cache;
    for (bool ended = false; !ended; ++steps) {
      std::vector<SlotTokens> rows;
      search.add_rows(5, rows);
      std::set<int64_t> written;
      for (const SlotTokens& row : rows) {
        for (int64_t i = 0; i < std::ssize(row.tokens); ++i) {
          const int64_t place = row.places.empty() ? row.first_position + i : row.places.back();
          EXPECT_TRUE(written.insert(place).second) << "two rows write to one place";
          EXPECT_LT(place, 100 + (settings.num_beams - 1) * settings.max_new_tokens);
          cache[place] = row.tokens[static_cast<size_t>(i)];
        }
      }
      std::vector<std::vector<float>> logits;
      for (const SlotTokens& row : rows) {
        EXPECT_EQ(row.slot, 5);
        Ids sequence;  // as the cache holds it
        for (int64_t p = 0; p < 3; ++p) sequence.push_back(cache[p]);
        for (const int32_t place : row.places) sequence.push_back(cache[place]);
        EXPECT_EQ(std::ssize(sequence), row.first_position + std::ssize(row.tokens));
        logits.push_back(logits_after(sequence, std::max(vocabulary, logit_count)));
      }
      std::vector<LogitRow> next;
      for (const auto& each : logits) next.push_back(row_of(each));
      ended = search.accept(next);
    }
    best = search.take();
  }
  Continuation best;
  int64_t steps = 0;
};

struct Scored {
  Continuation text;
  double score = -1e30;
};

// Finds the best sequence by trying all.
void find_best(const GenerationSettings& settings, int64_t vocabulary, Ids& tokens, double sum,
               Scored& best) {
  const std::vector<float> logits = logits_after(tokens, vocabulary);
  const LogitRow row = row_of(logits);
  const int64_t length = std::ssize(tokens) - 3 + 1;
  for (int32_t id = 0; id < vocabulary; ++id) {
    const double total = sum + static_cast<double>(row.log_probability(id));
    tokens.push_back(id);
    if (is_end(settings, id) || length == settings.max_new_tokens) {
      const double score = total / std::pow(static_cast<double>(length), settings.length_penalty);
      if (score > best.score) {
        best = {
            {Ids(tokens.begin() + 3, tokens.end() - (is_end(settings, id) ? 1 : 0)), is_end(settings, id)},
            score};
      }
    } else {
      find_best(settings, vocabulary, tokens, total, best);
    }
    tokens.pop_back();
  }
}

// A search with as many beams as sequences drops none, so it finds the best one.
TEST(BeamSearch, FindsTheBestOfAllWithEnoughBeams) {
  for (const double length_penalty : {0.0, 0.6, 1.0, 3.0}) {
    GenerationSettings settings{.num_beams = 300,
                                .length_penalty = length_penalty,
                                .early_stopping = EarlyStopping::kNever,
                                .max_new_tokens = 4};
    for (const Ids& ends : {Ids{}, Ids{kSearchEnd, 3}}) {
      settings.eos_token_id = ends;
      Ids tokens{3, 1, 2};
      Scored expected;
      find_best(settings, 4, tokens, 0, expected);
      const Search search(settings, 4);
      EXPECT_EQ(search.best.tokens, expected.text.tokens) << length_penalty;
      EXPECT_EQ(search.best.ended, expected.text.ended) << length_penalty;
    }
  }
}

// With too few candidates, end tokens would leave fewer beams than asked for.
TEST(BeamSearch, EndTokensDoNotTakeThePlacesOfBeams) {
  const GenerateOptions options = options_of({.num_beams = 2,
                                              .early_stopping = EarlyStopping::kNever,
                                              .max_new_tokens = 9,
                                              .eos_token_id = {0, 1, 2}},
                                             6);
  BeamSearch search(options, {{3}, 0});
  const std::vector<float> logits{9, 8, 7, 2, 1, 0};
  EXPECT_FALSE(search.accept(std::vector{row_of(logits)}));
  std::vector<SlotTokens> rows;
  search.add_rows(0, rows);
  EXPECT_EQ(rows.size(), 2U);
}

TEST(BeamSearch, BeamsReadTheirOwnTokensThroughPlaces) {
  for (const int64_t beams : {2, 3, 8}) {
    const Search search({.num_beams = beams, .length_penalty = 2, .min_new_tokens = 15, .max_new_tokens = 20},
                        50);
    EXPECT_GE(search.best.tokens.size(), 15U);
    EXPECT_GE(search.steps, 15);
  }
}

TEST(BeamSearch, WritesOnlyIdsOfTheTokenizer) {
  const GenerationSettings settings{.num_beams = 4, .min_new_tokens = 20, .max_new_tokens = 20};
  for (const int32_t id : Search(settings, 6, 50).best.tokens) EXPECT_LT(id, 6);
}

TEST(BeamSearch, StopsEarlyWhenItIsAsked) {
  GenerationSettings settings{.num_beams = 3, .length_penalty = 1.5, .max_new_tokens = 60};
  std::map<EarlyStopping, int64_t> steps;
  for (const EarlyStopping stopping : {EarlyStopping::kTrue, EarlyStopping::kFalse, EarlyStopping::kNever}) {
    settings.early_stopping = stopping;
    steps[stopping] = Search(settings, 12).steps;
  }
  EXPECT_LT(steps[EarlyStopping::kTrue], steps[EarlyStopping::kNever]);
  EXPECT_LE(steps[EarlyStopping::kFalse], steps[EarlyStopping::kNever]);
}

// With three ids and no pair of tokens twice, all ids are banned after some tokens.
TEST(BeamSearch, EndsIfEverythingIsBanned) {
  const Search search({.num_beams = 2, .no_repeat_ngram_size = 1, .min_new_tokens = 20, .max_new_tokens = 20},
                      6);
  EXPECT_FALSE(search.best.ended);
  EXPECT_EQ(search.best.tokens.size(), 2U) << "4 and 5 are the only ids that are not in the prompt";
}

}  // namespace
}  // namespace ripstop
