// Greedy generation of many sequences at once.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/core/function_ref.h"

namespace ripstop {

/// Tokens to append to one sequence of the key-value cache. `tokens` must live until the call that gets it
/// returns.
struct SlotTokens {
  int64_t slot = 0;            ///< the place of the sequence in the cache
  int64_t first_position = 0;  ///< of tokens[0]; 0 begins a new sequence in the slot
  std::span<const int32_t> tokens;
};

/// The model: computes the tokens of all items (distinct slots), adds their keys and values to the cache, and
/// returns for each item the most likely next token; among equals, the one with the lowest id. A call has
/// either whole prompts (all from position 0) or one token an item.
using AppendTokens = FunctionRef<std::vector<int32_t>(std::span<const SlotTokens> items)>;

/// Returns the ids of the next prompt; nullopt if there are no more prompts.
using NextPrompt = FunctionRef<std::optional<std::vector<int32_t>>()>;

/// The tokens generated after a prompt.
struct Continuation {
  std::vector<int32_t> tokens;  ///< without the end token
  bool ended = false;           ///< by the end token; false: by max_new_tokens
};

using TakeContinuation = FunctionRef<void(Continuation continuation)>;

struct GreedyOptions {
  int64_t slots = 1;           ///< sequences at once: slots 0 .. slots-1 of the cache
  int64_t context = 0;         ///< positions of a slot
  int64_t prefill_tokens = 0;  ///< the most tokens of one call with prompts; at least `context`
  int64_t max_new_tokens = 0;  ///< at least 1; the end token counts
  int32_t end_token = 0;
};

/// Continues every prompt by the most likely tokens. Gives the continuations to `take` in the order of the
/// prompts.
///
/// A sequence keeps its slot until its end token or max_new_tokens. Then the next prompt takes the slot,
/// while the other sequences go on. `next_prompt` is called when a slot becomes free, so memory does not grow
/// with the number of prompts. The calls depend only on prompts and continuations, so ranks that hold slices
/// of one model make the same calls in the same order. A continuation does not depend on `slots` if `append`
/// computes each item independently of the others.
///
/// A prompt has at least one token, and fits into `context` together with max_new_tokens more; else throws
/// Error(kBug).
/// Source: continuous batching as in Orca, OSDI 2022, section 3.
void generate_greedy(const GreedyOptions& options, NextPrompt next_prompt, AppendTokens append,
                     TakeContinuation take);

}  // namespace ripstop
