#include "train/generate/write_texts.h"

#include <deque>

namespace ripstop {
namespace {

// A summary begins with the space after the separator, which is no part of it.
std::string trimmed(const std::string& text) {
  constexpr const char* kWhite = " \t\r\n";
  const size_t begin = text.find_first_not_of(kWhite);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
}

}  // namespace

void write_texts(InferenceModel& model, const Tokenizer& tokenizer, int64_t max_new_tokens,
                 NextEncodedPrompt next_prompt, TakeText take) {
  const InferenceOptions& limits = model.options();
  const GreedyOptions options{.slots = limits.slots,
                              .context = limits.context,
                              .prefill_tokens = limits.prefill_tokens,
                              .max_new_tokens = max_new_tokens,
                              .end_token = tokenizer.eos()};
  std::deque<int64_t> cut_tokens;  // of the prompts whose text is not finished
  generate_greedy(
      options,
      [&]() -> std::optional<std::vector<int32_t>> {
        std::optional<EncodedPrompt> prompt = next_prompt();
        if (!prompt) return std::nullopt;
        cut_tokens.push_back(cut_document(*prompt, limits.context - max_new_tokens));
        return std::move(prompt->tokens);
      },
      [&](std::span<const SlotTokens> items) { return model.append(items); },
      [&](Continuation continuation) {
        // A model may have more ids than its tokenizer has pieces. Such ids stand for no text.
        std::erase_if(continuation.tokens,
                      [&](int32_t token) { return token >= tokenizer.vocabulary_size(); });
        take({trimmed(tokenizer.decode(continuation.tokens)), cut_tokens.front()});
        cut_tokens.pop_front();
      });
}

}  // namespace ripstop
