#include "train/generate/greedy.h"

#include <deque>
#include <utility>

#include "model/core/error.h"

namespace ripstop {
namespace {

// A fixed number of slots, refilled as soon as a sequence ends: no sequence waits for the longest one of its
// batch.
class GreedyLoop {
 public:
  GreedyLoop(const GreedyOptions& options, NextPrompt next_prompt, AppendTokens append, TakeContinuation take)
      : options_(options), next_prompt_(next_prompt), append_(append), take_(take), slots_(options.slots) {}

  void run() {
    for (waiting_ = next_prompt_(); waiting_ || active_ > 0;) {
      if (waiting_ && active_ < options_.slots) start_sequences();
      if (active_ > 0) step_sequences();
    }
  }

 private:
  struct Sequence {
    int64_t number = -1;    // the prompt's number; -1: the slot is free
    int64_t positions = 0;  // already in the cache
    Continuation continuation;
  };

  // Gives free slots to prompts, as many as one call can compute, and computes them.
  void start_sequences() {
    std::vector<std::vector<int32_t>> prompts;
    std::vector<int64_t> slots;
    int64_t tokens = 0;
    for (int64_t slot = 0; slot < options_.slots && waiting_; ++slot) {
      if (slots_[slot].number >= 0) continue;
      const int64_t size = std::ssize(*waiting_);
      RIPSTOP_CHECK(size >= 1 && size + options_.max_new_tokens <= options_.context,
                    "a prompt of {} tokens and {} new ones, expected at most {} together", size,
                    options_.max_new_tokens, options_.context);
      // The rest waits for the next round. The first one always fits: generate_greedy checks that.
      if (tokens + size > options_.prefill_tokens) break;
      tokens += size;
      slots.push_back(slot);
      slots_[slot] = {started_++, size, {}};
      ++active_;
      finished_.emplace_back();
      prompts.push_back(std::move(*waiting_));
      waiting_ = next_prompt_();
    }
    std::vector<SlotTokens> items;
    for (size_t i = 0; i < prompts.size(); ++i) items.push_back({slots[i], 0, prompts[i]});
    append(items);
  }

  // One more token for every sequence under way.
  void step_sequences() {
    std::vector<SlotTokens> items;
    for (int64_t slot = 0; slot < options_.slots; ++slot) {
      Sequence& sequence = slots_[slot];
      if (sequence.number < 0) continue;
      items.push_back({slot, sequence.positions++, std::span(&sequence.continuation.tokens.back(), 1)});
    }
    append(items);
  }

  void append(std::span<const SlotTokens> items) {
    const std::vector<int32_t> next = append_(items);
    RIPSTOP_CHECK(next.size() == items.size(), "{} tokens for {} sequences", next.size(), items.size());
    for (size_t i = 0; i < items.size(); ++i) accept(slots_[items[i].slot], next[i]);
    hand_over();
  }

  // Adds a token to a sequence, and frees its slot if that was the last one.
  void accept(Sequence& sequence, int32_t token) {
    Continuation& continuation = sequence.continuation;
    // The end token is no part of the text.
    continuation.ended = token == options_.end_token;
    if (!continuation.ended) continuation.tokens.push_back(token);
    if (!continuation.ended && std::ssize(continuation.tokens) < options_.max_new_tokens) return;
    finished_[sequence.number - handed_over_] = std::move(continuation);
    sequence = {};
    --active_;
  }

  // Gives finished continuations to the caller. A short one waits for the longer ones of earlier prompts.
  void hand_over() {
    for (; !finished_.empty() && finished_.front(); ++handed_over_) {
      take_(std::move(*finished_.front()));
      finished_.pop_front();
    }
  }

  const GreedyOptions& options_;
  NextPrompt next_prompt_;
  AppendTokens append_;
  TakeContinuation take_;
  std::optional<std::vector<int32_t>> waiting_;  // the next prompt; nullopt: there are no more
  std::vector<Sequence> slots_;
  int64_t active_ = 0;
  int64_t started_ = 0;
  int64_t handed_over_ = 0;
  std::deque<std::optional<Continuation>> finished_;  // of prompts handed_over_ .. started_ - 1
};

}  // namespace

void generate_greedy(const GreedyOptions& options, NextPrompt next_prompt, AppendTokens append,
                     TakeContinuation take) {
  RIPSTOP_CHECK(options.slots >= 1 && options.max_new_tokens >= 1, "{} slots, {} new tokens", options.slots,
                options.max_new_tokens);
  RIPSTOP_CHECK(options.prefill_tokens >= options.context, "{} tokens a call, a prompt may have {}",
                options.prefill_tokens, options.context);
  GreedyLoop(options, next_prompt, append, take).run();
}

}  // namespace ripstop
