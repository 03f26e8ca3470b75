#include "train/generate/token_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/core/error.h"
#include "model/core/philox.h"

namespace ripstop {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Bans every token that followed an earlier occurrence of the last size - 1 tokens.
void ban_repetitions(int64_t size, std::span<const int32_t> tokens, std::vector<int32_t>& banned) {
  const int64_t count = std::ssize(tokens);
  if (size == 0 || count < size) return;
  const auto last = tokens.end() - (size - 1);
  for (int64_t i = 0; i + size <= count; ++i)
    if (std::equal(last, tokens.end(), tokens.begin() + i))
      banned.push_back(tokens[static_cast<size_t>(i + size - 1)]);
}

// Removes the tokens below the top_k-th largest logit. Makes no copy, which would have a vocabulary's size.
void keep_top_k(int64_t top_k, std::vector<ScoredToken>& tokens) {
  if (top_k == 0 || top_k >= std::ssize(tokens)) return;
  const auto last = tokens.begin() + (top_k - 1);
  std::ranges::nth_element(tokens, last, std::ranges::greater(), &ScoredToken::logit);
  const float least = last->logit;
  std::erase_if(tokens, [&](const ScoredToken& token) { return token.logit < least; });
  std::ranges::sort(tokens, {}, &ScoredToken::id);
}

// The weights exp(logit - largest logit) of tokens, and their sum in the order of the tokens.
class TokenWeights {
 public:
  explicit TokenWeights(const std::vector<ScoredToken>& tokens) {
    for (const ScoredToken& token : tokens) largest_ = std::max(largest_, token.logit);
    for (const ScoredToken& token : tokens) sum_ += of(token);
  }
  double of(const ScoredToken& token) const {
    return std::exp(static_cast<double>(token.logit) - static_cast<double>(largest_));
  }
  double sum() const { return sum_; }

 private:
  float largest_ = kLowest;
  double sum_ = 0;
};

// Removes the least likely tokens whose probabilities sum to at most 1 - top_p. One token always stays.
void keep_top_p(double top_p, std::vector<ScoredToken>& tokens) {
  if (top_p >= 1 || tokens.empty()) return;
  std::sort(tokens.begin(), tokens.end(), [](const ScoredToken& a, const ScoredToken& b) {
    return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
  });
  const TokenWeights weights(tokens);
  size_t removed = 0;
  for (double cumulative = weights.of(tokens[0]);
       removed + 1 < tokens.size() && cumulative <= (1 - top_p) * weights.sum();)
    cumulative += weights.of(tokens[++removed]);
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(removed));
  std::ranges::sort(tokens, {}, &ScoredToken::id);
}

}  // namespace

std::span<const float> LogitRow::of_ids(int64_t ids) const {
  RIPSTOP_CHECK(std::ssize(logits) >= ids, "logits of {} ids, expected {}", logits.size(), ids);
  return logits.first(static_cast<size_t>(ids));
}

std::vector<int32_t> banned_tokens(const GenerationSettings& settings, const PartialText& text,
                                   std::span<const int32_t> end_tokens) {
  std::vector<int32_t> banned;
  ban_repetitions(settings.no_repeat_ngram_size, text.tokens, banned);
  if (text.new_tokens() < settings.min_new_tokens)
    banned.insert(banned.end(), end_tokens.begin(), end_tokens.end());
  std::sort(banned.begin(), banned.end());
  return banned;
}

std::vector<ScoredToken> best_tokens(std::span<const float> logits, std::span<const int32_t> banned,
                                     int64_t count) {
  std::vector<ScoredToken> best;
  float least = kLowest;  // only larger logits can enter `best`
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > least)) continue;  // also skips NaN
    const ScoredToken token{static_cast<int32_t>(i), logits[i]};
    if (std::ranges::binary_search(banned, token.id)) continue;
    const auto place = std::find_if(best.begin(), best.end(),
                                    [&](const ScoredToken& other) { return token.logit > other.logit; });
    best.insert(place, token);
    if (std::ssize(best) > count) best.pop_back();
    if (std::ssize(best) == count) least = best.back().logit;
  }
  return best;
}

std::vector<ScoredToken> drawable_tokens(const GenerationSettings& settings, std::span<const float> logits,
                                         std::span<const int32_t> banned) {
  const auto temperature = static_cast<float>(settings.temperature);
  std::vector<ScoredToken> tokens;
  tokens.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const ScoredToken token{static_cast<int32_t>(i), logits[i] / temperature};
    if (token.logit > kLowest && !std::ranges::binary_search(banned, token.id)) tokens.push_back(token);
  }
  keep_top_k(settings.top_k, tokens);
  keep_top_p(settings.top_p, tokens);
  return tokens;
}

std::optional<int32_t> draw_token(const GenerationSettings& settings, std::span<const float> logits,
                                  std::span<const int32_t> banned, const DrawKey& key) {
  const std::vector<ScoredToken> tokens = drawable_tokens(settings, logits, banned);
  if (tokens.empty()) return std::nullopt;
  const auto document = static_cast<uint64_t>(key.document), position = static_cast<uint64_t>(key.position);
  const PhiloxBlock bits = philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                   static_cast<uint32_t>(document), static_cast<uint32_t>(document >> 32)},
                                  static_cast<uint64_t>(settings.seed));
  const TokenWeights weights(tokens);
  double rest = uniform_of(bits[0], bits[1]);
  for (const ScoredToken& token : tokens) {
    rest -= weights.of(token) / weights.sum();
    if (rest < 0) return token.id;
  }
  return tokens.back().id;  // rounded weights may sum to less than 1
}

}  // namespace ripstop
