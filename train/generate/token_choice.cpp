#include "train/generate/token_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "model/core/philox.h"

namespace ripstop {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

bool is_in(std::span<const int32_t> ascending, int32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

// Every earlier occurrence of the last size - 1 tokens bans the token that followed it.
void ban_repetitions(int64_t size, std::span<const int32_t> tokens, std::vector<int32_t>& banned) {
  const int64_t count = std::ssize(tokens);
  if (size == 0 || count < size) return;
  const auto last = tokens.end() - (size - 1);
  for (int64_t i = 0; i + size <= count; ++i)
    if (std::equal(last, tokens.end(), tokens.begin() + i))
      banned.push_back(tokens[static_cast<size_t>(i + size - 1)]);
}

// Removes all that are below the top_k-th largest.
void keep_top_k(int64_t top_k, std::vector<ScoredToken>& tokens) {
  if (top_k == 0 || top_k >= std::ssize(tokens)) return;
  std::vector<float> logits;
  for (const ScoredToken& token : tokens) logits.push_back(token.logit);
  std::nth_element(logits.begin(), logits.begin() + (top_k - 1), logits.end(), std::greater<>());
  const float least = logits[static_cast<size_t>(top_k - 1)];
  std::erase_if(tokens, [&](const ScoredToken& token) { return token.logit < least; });
}

// e^(logit - largest) of each, and their sum.
double weights_of(const std::vector<ScoredToken>& tokens, std::vector<double>& weights) {
  float largest = kLowest;
  for (const ScoredToken& token : tokens) largest = std::max(largest, token.logit);
  double sum = 0;
  weights.clear();
  for (const ScoredToken& token : tokens) {
    weights.push_back(std::exp(static_cast<double>(token.logit) - static_cast<double>(largest)));
    sum += weights.back();
  }
  return sum;
}

// Removes the least likely ones as long as they sum to 1 - top_p at most. One always stays.
void keep_top_p(double top_p, std::vector<ScoredToken>& tokens) {
  if (top_p >= 1 || tokens.empty()) return;
  std::sort(tokens.begin(), tokens.end(), [](const ScoredToken& a, const ScoredToken& b) {
    return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
  });
  std::vector<double> weights;
  const double sum = weights_of(tokens, weights);
  size_t removed = 0;
  for (double cumulative = weights[0]; removed + 1 < tokens.size() && cumulative <= (1 - top_p) * sum;)
    cumulative += weights[++removed];
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(removed));
  std::sort(tokens.begin(), tokens.end(),
            [](const ScoredToken& a, const ScoredToken& b) { return a.id < b.id; });
}

}  // namespace

std::vector<int32_t> banned_tokens(const GenerationSettings& settings, const PartialText& text,
                                   int32_t end_token) {
  std::vector<int32_t> banned;
  ban_repetitions(settings.no_repeat_ngram_size, text.tokens, banned);
  if (text.new_tokens() < settings.min_new_tokens) banned.push_back(end_token);
  std::sort(banned.begin(), banned.end());
  return banned;
}

std::vector<ScoredToken> best_tokens(std::span<const float> logits, std::span<const int32_t> banned,
                                     int64_t count) {
  std::vector<ScoredToken> best;
  float least = kLowest;  // a token must be above it to be among the best
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > least)) continue;  // also if it is not a number
    const ScoredToken token{static_cast<int32_t>(i), logits[i]};
    if (is_in(banned, token.id)) continue;
    const auto place = std::find_if(best.begin(), best.end(),
                                    [&](const ScoredToken& other) { return token.logit > other.logit; });
    best.insert(place, token);
    if (std::ssize(best) > count) best.pop_back();
    if (std::ssize(best) == count) least = best.back().logit;
  }
  return best;
}

std::vector<TokenProbability> drawable_tokens(const GenerationSettings& settings,
                                              std::span<const float> logits,
                                              std::span<const int32_t> banned) {
  const auto temperature = static_cast<float>(settings.temperature);
  std::vector<ScoredToken> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    const ScoredToken token{static_cast<int32_t>(i), logits[i] / temperature};
    if (token.logit > kLowest && !is_in(banned, token.id)) tokens.push_back(token);
  }
  keep_top_k(settings.top_k, tokens);
  keep_top_p(settings.top_p, tokens);
  std::vector<double> weights;
  const double sum = weights_of(tokens, weights);
  std::vector<TokenProbability> drawable;
  for (size_t i = 0; i < tokens.size(); ++i) drawable.push_back({tokens[i].id, weights[i] / sum});
  return drawable;
}

std::optional<int32_t> draw_token(const GenerationSettings& settings, std::span<const float> logits,
                                  std::span<const int32_t> banned, const DrawKey& key) {
  const std::vector<TokenProbability> drawable = drawable_tokens(settings, logits, banned);
  if (drawable.empty()) return std::nullopt;
  const auto document = static_cast<uint64_t>(key.document), position = static_cast<uint64_t>(key.position);
  const PhiloxBlock bits = philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                   static_cast<uint32_t>(document), static_cast<uint32_t>(document >> 32)},
                                  static_cast<uint64_t>(settings.seed));
  double rest = uniform_of(bits[0], bits[1]);
  for (const TokenProbability& token : drawable) {
    rest -= token.probability;
    if (rest < 0) return token.id;
  }
  return drawable.back().id;  // rounding left a little of the 1
}

}  // namespace ripstop
