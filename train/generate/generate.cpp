#include "train/generate/generate.h"

#include <deque>
#include <exception>
#include <utility>

#include "model/core/error.h"
#include "train/generate/beam_search.h"

namespace ripstop {
namespace {

class SingleText {
 public:
  SingleText(const GenerateOptions& options, NumberedPrompt prompt)
      : options_(options),
        number_(prompt.number),
        prompt_(std::ssize(prompt.tokens)),
        tokens_(std::move(prompt.tokens)) {}

  void add_rows(int64_t slot, std::vector<SlotTokens>& rows) const {
    const bool begins = std::ssize(tokens_) == prompt_;
    const std::span all(tokens_);
    rows.push_back({.slot = slot,
                    .first_position = begins ? 0 : std::ssize(tokens_) - 1,
                    .tokens = begins ? all : all.last(1)});
  }
  Continuation take() {
    tokens_.erase(tokens_.begin(), tokens_.begin() + prompt_);
    return {std::move(tokens_), ended_};
  }

 protected:
  // Returns true if the token was the last.
  bool add(int32_t token) {
    ended_ = options_.ends(token);
    if (!ended_) tokens_.push_back(token);
    return ended_ || std::ssize(tokens_) - prompt_ == options_.settings.max_new_tokens;
  }

  const GenerateOptions& options_;
  int64_t number_, prompt_;
  std::vector<int32_t> tokens_;
  bool ended_ = false;
};

// A text that grows by the model's most likely token (AppendTokens::best).
class BestText : public SingleText {
 public:
  using Next = int32_t;
  using SingleText::SingleText;

  bool accept(std::span<const int32_t> next) { return add(next.front()); }
};

// A text that grows by tokens chosen from their logits (AppendTokens::logits).
class ChosenText : public SingleText {
 public:
  using Next = LogitRow;
  using SingleText::SingleText;

  bool accept(std::span<const LogitRow> next) {
    const PartialText text{tokens_, prompt_};
    const std::vector<int32_t> banned = options_.banned(text);
    const std::optional<int32_t> token = choose(next.front().of_ids(options_.ids), banned, text.new_tokens());
    return !token || add(*token);
  }

 private:
  std::optional<int32_t> choose(std::span<const float> logits, std::span<const int32_t> banned,
                                int64_t position) const {
    if (options_.settings.do_sample)
      return draw_token(options_.settings, logits, banned, {.document = number_, .position = position});
    const std::vector<ScoredToken> best = best_tokens(logits, banned, 1);
    return best.empty() ? std::nullopt : std::optional(best.front().id);
  }
};

// `Append` returns a Text::Next for each item.
template <class Text, class Append>
class GenerationLoop {
 public:
  GenerationLoop(const GenerateOptions& options, NextPrompt next_prompt, Append append, TakeContinuation take)
      : options_(options),
        next_prompt_(next_prompt),
        append_(append),
        take_(take),
        slots_(static_cast<size_t>(options.slots)) {}

  void run() {
    for (waiting_ = next_prompt_(); waiting_ || active_ > 0;) {
      if (waiting_ && active_ < options_.slots) start_sequences();
      if (active_ > 0) step_sequences();
    }
  }

 private:
  struct Sequence {
    int64_t number = 0;  // number of the prompt in the order of prompts, from 0
    Text text;
  };

  // Puts prompts into free slots, as many as fit into one call, and makes the call.
  void start_sequences() {
    std::vector<int64_t> started;
    int64_t tokens = 0;
    for (int64_t slot = 0; slot < options_.slots && waiting_; ++slot) {
      std::optional<Sequence>& sequence = slots_[static_cast<size_t>(slot)];
      if (sequence) continue;
      const int64_t size = std::ssize(waiting_->tokens);
      RIPSTOP_CHECK(size >= 1 && size + options_.settings.max_new_tokens <= options_.context,
                    "a prompt of {} tokens and {} new ones, expected at most {} together", size,
                    options_.settings.max_new_tokens, options_.context);
      // The other prompts wait for the next call. The first prompt always fits: generate() checks it.
      if (tokens + size > options_.prefill_tokens) break;
      tokens += size;
      sequence.emplace(Sequence{started_++, Text(options_, std::move(*waiting_))});
      started.push_back(slot);
      ++active_;
      finished_.emplace_back();
      waiting_ = next_prompt_();
    }
    append(started);
  }

  void step_sequences() {
    std::vector<int64_t> under_way;
    for (int64_t slot = 0; slot < options_.slots; ++slot)
      if (slots_[static_cast<size_t>(slot)]) under_way.push_back(slot);
    append(under_way);
  }

  void append(const std::vector<int64_t>& slots) {
    std::vector<SlotTokens> items;
    std::vector<size_t> first_item;
    for (const int64_t slot : slots) {
      first_item.push_back(items.size());
      slots_[static_cast<size_t>(slot)]->text.add_rows(slot, items);
    }
    first_item.push_back(items.size());
    const auto next = append_(items);
    RIPSTOP_CHECK(next.size() == items.size(), "{} results for {} rows", next.size(), items.size());
    std::vector<char> last(slots.size());
    // An exception that leaves an OpenMP loop would end the process.
    std::vector<std::exception_ptr> failures(slots.size());
    // Threads pay off only for rows of logits, because each row has a vocabulary's size.
#pragma omp parallel for schedule(dynamic) if (!std::is_same_v <typename Text::Next, int32_t>)
    for (size_t i = 0; i < slots.size(); ++i) {
      const std::span<const typename Text::Next> all(next);
      const auto own = all.subspan(first_item[i], first_item[i + 1] - first_item[i]);
      try {
        last[i] = slots_[static_cast<size_t>(slots[i])]->text.accept(own) ? 1 : 0;
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
    for (size_t i = 0; i < slots.size(); ++i)
      if (last[i] != 0) finish(slots_[static_cast<size_t>(slots[i])]);
    hand_over();
  }

  void finish(std::optional<Sequence>& sequence) {
    finished_[static_cast<size_t>(sequence->number - handed_over_)] = sequence->text.take();
    sequence.reset();
    --active_;
  }

  // A finished continuation waits until the continuations of all earlier prompts are finished.
  void hand_over() {
    for (; !finished_.empty() && finished_.front(); ++handed_over_) {
      take_(std::move(*finished_.front()));
      finished_.pop_front();
    }
  }

  const GenerateOptions& options_;
  NextPrompt next_prompt_;
  Append append_;
  TakeContinuation take_;
  std::optional<NumberedPrompt> waiting_;       // the next prompt; nullopt: no more prompts
  std::vector<std::optional<Sequence>> slots_;  // nullopt: the slot is free
  int64_t active_ = 0;
  int64_t started_ = 0;
  int64_t handed_over_ = 0;
  // The continuations of the prompts handed_over_ .. started_ - 1; nullopt: not finished.
  std::deque<std::optional<Continuation>> finished_;
};

}  // namespace

std::vector<int32_t> GenerateOptions::banned(const PartialText& text) const {
  std::vector<int32_t> all = banned_tokens(settings, text, end_tokens);
  all.insert(all.end(), never.begin(), never.end());
  std::ranges::sort(all);
  return all;
}

void generate(const GenerateOptions& options, NextPrompt next_prompt, const AppendTokens& append,
              TakeContinuation take) {
  const GenerationSettings& settings = options.settings;
  RIPSTOP_CHECK(options.slots >= 1 && settings.max_new_tokens >= 1 && options.ids >= 1,
                "{} slots, {} new tokens, {} ids", options.slots, settings.max_new_tokens, options.ids);
  RIPSTOP_CHECK(options.prefill_tokens >= options.context, "{} tokens a call, a prompt may have {}",
                options.prefill_tokens, options.context);
  RIPSTOP_CHECK(settings.num_beams == 1 || !settings.do_sample, "beams and sampling together");
  using Best = decltype(append.best);
  using Logits = decltype(append.logits);
  if (settings.takes_the_best() && !options.needs_logits)
    GenerationLoop<BestText, Best>(options, next_prompt, append.best, take).run();
  else if (settings.num_beams == 1)
    GenerationLoop<ChosenText, Logits>(options, next_prompt, append.logits, take).run();
  else
    GenerationLoop<BeamSearch, Logits>(options, next_prompt, append.logits, take).run();
}

}  // namespace ripstop
