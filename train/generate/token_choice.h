#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "train/config/generation_settings.h"

namespace ripstop {

/// A view of the logits of the next token, by id.
struct LogitRow {
  std::span<const float> logits = {};
  float largest = 0;  ///< the largest logit of all ids
  float log_sum = 0;  ///< log of the sum of exp(logit - largest) over all ids

  /// The logits of the ids below `ids`. Throws Error(kBug) if the row has fewer logits.
  std::span<const float> of_ids(int64_t ids) const;
  float log_probability(int32_t id) const { return logits[static_cast<size_t>(id)] - largest - log_sum; }
};

/// A sequence that is being generated.
struct PartialText {
  std::span<const int32_t> tokens;  ///< prompt and new tokens
  int64_t prompt = 0;               ///< tokens of the prompt

  int64_t new_tokens() const { return std::ssize(tokens) - prompt; }
};

/// The ids that must not come next, ascending: ids that would repeat an n-gram of no_repeat_ngram_size tokens
/// in `text`, prompt included, and `end_tokens` before min_new_tokens. Source: the n-gram rule of Paulus et
/// al., arXiv:1705.04304, section 2.5, applied to prompts as in transformers.
std::vector<int32_t> banned_tokens(const GenerationSettings& settings, const PartialText& text,
                                   std::span<const int32_t> end_tokens);

struct ScoredToken {
  int32_t id = 0;
  float logit = 0;
};

/// The `count` ids with the largest logits, best first; equal logits in order of their ids. Skips ids in
/// `banned` (ascending) and logits that are minus infinity or NaN, so the result may have fewer.
std::vector<ScoredToken> best_tokens(std::span<const float> logits, std::span<const int32_t> banned,
                                     int64_t count);

/// The key of a random number; depends on neither mesh nor batch size.
struct DrawKey {
  int64_t document = 0;  ///< the prompt's number in its file or split
  int64_t position = 0;  ///< the new token's number in its text
};

/// The ids that may be drawn, ascending, each with logit / temperature. Keeps the top_k largest logits, and
/// all logits equal to the smallest of these; then only the most likely ids, until their probabilities sum to
/// top_p. If ids at the edge of top_p are equally likely, keeps the lowest. Source: top-p, arXiv:1904.09751;
/// ties of top_k as in transformers.
std::vector<ScoredToken> drawable_tokens(const GenerationSettings& settings, std::span<const float> logits,
                                         std::span<const int32_t> banned);

/// Bytes that draw_token() needs for each logit.
inline constexpr int64_t kDrawBytes = sizeof(ScoredToken);
/// Draws one of drawable_tokens() by a random number that depends only on settings.seed and `key`; nullopt if
/// no id may be drawn.
std::optional<int32_t> draw_token(const GenerationSettings& settings, std::span<const float> logits,
                                  std::span<const int32_t> banned, const DrawKey& key);

}  // namespace ripstop
