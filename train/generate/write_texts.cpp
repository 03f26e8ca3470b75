#include "train/generate/write_texts.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace ripstop {
namespace {

// A summary begins with the space after the separator, which is no part of it.
std::string trimmed(const std::string& text) {
  constexpr const char* kWhite = " \t\r\n";
  const size_t begin = text.find_first_not_of(kWhite);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
}

}  // namespace

void write_texts(InferenceModel& model, const Tokenizer& tokenizer, const GenerationSettings& settings,
                 NextDocumentPrompt next_prompt, TakeText take) {
  const InferenceOptions& limits = model.options();
  // A model may have more ids than its tokenizer has pieces. Such ids stand for no text.
  const int64_t ids = std::min(tokenizer.vocabulary_size(), model.model().config().vocab_size);
  const GenerateOptions options{.slots = limits.slots,
                                .context = limits.context,
                                .prefill_tokens = limits.prefill_tokens,
                                .ids = ids,
                                .end_token = tokenizer.eos(),
                                .settings = settings};
  std::deque<int64_t> cut_tokens;  // of the prompts whose text is not finished
  generate(
      options,
      [&]() -> std::optional<NumberedPrompt> {
        std::optional<DocumentPrompt> prompt = next_prompt();
        if (!prompt) return std::nullopt;
        cut_tokens.push_back(cut_document(prompt->encoded, limits.context - settings.max_new_tokens));
        return NumberedPrompt{std::move(prompt->encoded.tokens), prompt->number};
      },
      {.best = [&](std::span<const SlotTokens> items) { return model.best(items, ids); },
       .logits = [&](std::span<const SlotTokens> items) { return model.logits(items); }},
      [&](const Continuation& continuation) {
        take({trimmed(tokenizer.decode(continuation.tokens)), cut_tokens.front()});
        cut_tokens.pop_front();
      });
}

}  // namespace ripstop
