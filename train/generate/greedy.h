// Greedy generation, many sequences at once.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/core/function_ref.h"

namespace ripstop {

/// Tokens that go to the end of one sequence of the key-value cache. `tokens` lives until the call that gets
/// it returns.
struct SlotTokens {
  int64_t slot = 0;            ///< the place of the sequence in the cache
  int64_t first_position = 0;  ///< of tokens[0]; 0 begins a new sequence there, whatever the slot held
  std::span<const int32_t> tokens;
};

/// What generation asks of a model: runs the tokens of all items (distinct slots), adds their keys and values
/// to the cache, and returns for each item the most likely token behind its last one, the lowest id of
/// equals. Called either with whole prompts (all from position 0) or with one token an item.
using AppendTokens = FunctionRef<std::vector<int32_t>(std::span<const SlotTokens> items)>;

/// The ids of the next prompt; nothing when there is no further one.
using NextPrompt = FunctionRef<std::optional<std::vector<int32_t>>()>;

/// What followed a prompt.
struct Continuation {
  std::vector<int32_t> tokens;  ///< without the end token
  bool ended = false;           ///< by the end token; else max_new_tokens were reached
};

using TakeContinuation = FunctionRef<void(Continuation continuation)>;

struct GreedyOptions {
  int64_t slots = 1;           ///< sequences at once: slots 0 .. slots-1 of the cache
  int64_t context = 0;         ///< positions of a slot
  int64_t prefill_tokens = 0;  ///< tokens of one call with prompts, at most; at least `context`
  int64_t max_new_tokens = 0;  ///< >= 1; the end token counts
  int32_t end_token = 0;
};

/// Continues every prompt by the most likely tokens, and hands the continuations over in the order of the
/// prompts.
///
/// A sequence keeps its slot until its end token or max_new_tokens; then a waiting prompt takes the slot,
/// while the others go on. Prompts are asked for as slots become free, so memory does not grow with their
/// number. The calls depend only on prompts and continuations: ranks that hold slices of one model make the
/// same calls in the same order. A continuation does not depend on `slots` where `append` treats items apart.
///
/// A prompt has at least one token, and with max_new_tokens more it fits into `context` (else Error(kBug)).
/// Source: continuous batching as in Orca, OSDI 2022, section 3.
void generate_greedy(const GreedyOptions& options, NextPrompt next_prompt, AppendTokens append,
                     TakeContinuation take);

}  // namespace ripstop
