// Generates many sequences at once: greedily, by beam search, or by drawing at random.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/core/function_ref.h"
#include "train/config/generation_settings.h"
#include "train/generate/token_choice.h"

namespace ripstop {

/// Tokens to append to a sequence in the key-value cache. Spans are borrowed for one call.
struct SlotTokens {
  int64_t slot = 0;            ///< the sequence's slot in the cache
  int64_t first_position = 0;  ///< the position of tokens[0]; 0 begins a new sequence in the slot
  std::span<const int32_t> tokens;
  // Fields for a beam search, whose beams share the slot:
  int64_t beam = 0;
  int64_t prompt = 0;  ///< tokens of the prompt; position p < prompt has place p
  /// The places of positions prompt, prompt + 1, ..., first_position.
  std::span<const int32_t> places = {};
};

/// The calls to a model. Each computes the tokens of all items (distinct slots and beams), and adds their
/// keys and values to the cache. A call has either prompts, from position 0, or one token for each item.
struct AppendTokens {
  /// The most likely id below GenerateOptions::ids for each item; among equal logits, the lowest.
  FunctionRef<std::vector<int32_t>(std::span<const SlotTokens> items)> best;
  /// The logits of all ids for each item, valid until the next call.
  FunctionRef<std::span<const LogitRow>(std::span<const SlotTokens> items)> logits;
};

/// A prompt, and its number in the file or split; the number is part of the key of random numbers.
struct NumberedPrompt {
  std::vector<int32_t> tokens;
  int64_t number = 0;
};

/// Returns nullopt if there are no more prompts.
using NextPrompt = FunctionRef<std::optional<NumberedPrompt>()>;

/// The tokens generated after a prompt.
struct Continuation {
  std::vector<int32_t> tokens;  ///< without the end token
  /// Whether an end token was generated; false: max_new_tokens was reached, or all ids were banned.
  bool ended = false;
};

/// Called for each prompt, in order.
using TakeContinuation = FunctionRef<void(Continuation continuation)>;

struct GenerateOptions {
  int64_t slots = 1;    ///< sequences that are generated at once, in the slots 0 .. slots - 1 of the cache
  int64_t context = 0;  ///< maximum tokens of a sequence
  int64_t prefill_tokens = 0;            ///< maximum tokens of one call with prompts; at least `context`
  int64_t ids = 0;                       ///< only ids below this number are generated
  std::vector<int32_t> end_tokens = {};  ///< the ids that end a sequence, ascending
  std::vector<int32_t> never = {};       ///< ids below `ids` not to be generated; append.best ignores this
  GenerationSettings settings;           ///< max_new_tokens counts the end token, min_new_tokens does not
  bool needs_logits = false;             ///< append.logits is called, even if settings.takes_the_best()

  bool ends(int32_t token) const { return std::ranges::binary_search(end_tokens, token); }
  /// The ids that must not come next in `text`, ascending: banned_tokens() and `never`.
  std::vector<int32_t> banned(const PartialText& text) const;
};

/// Continues every prompt: with beams by BeamSearch, with do_sample by draw_token(), else by the most likely
/// token that is not banned. Calls append.best if settings.takes_the_best() and not `needs_logits`, else
/// append.logits. A sequence ends early if every id is banned.
///
/// A sequence keeps its slot until it ends; then the next prompt takes the slot while the other sequences go
/// on. `next_prompt` is called one prompt ahead, so memory does not grow with the number of prompts. Options,
/// prompts and continuations alone decide the calls, so ranks with slices of one model make the same calls in
/// the same order. A continuation does not depend on `slots` if the model computes each item independently of
/// the others.
///
/// Throws Error(kBug) for wrong options, and if a prompt is empty or exceeds `context` with its new tokens.
/// Source: continuous batching as in Orca, OSDI 2022, section 3.
void generate(const GenerateOptions& options, NextPrompt next_prompt, const AppendTokens& append,
              TakeContinuation take);

}  // namespace ripstop
