#include "data/dataset/conversation_example.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ripstop {

TokenExample conversation_example(EncodedConversation encoded) {
  TokenExample example{std::move(encoded.tokens), {}, {}, std::move(encoded.why_only_last)};
  const EncodedTurn* user = nullptr;  // latest turn of the user since the last turn of the assistant
  for (const EncodedTurn& turn : encoded.turns) {
    // A template may leave a message out or move it. A leading system message is no turn.
    if (turn.begin == turn.end || (turn.role == Role::kSystem && example.turn_begin.empty())) continue;
    example.turn_begin.push_back(turn.begin);
    if (turn.role == Role::kUser) user = &turn;
    if (turn.role != Role::kAssistant) continue;
    // Token 0 is never a target, because no token before it predicts it.
    const int64_t begin = std::max<int64_t>(turn.target_begin, 1);
    const int64_t cut_begin = user != nullptr ? user->text_begin : begin;
    const int64_t cut_end = user != nullptr ? user->text_end : begin;
    example.spans.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(turn.end),
                             static_cast<int32_t>(cut_begin), static_cast<int32_t>(cut_end)});
    user = nullptr;
  }
  return example;
}

TokenExample joined_example(const Tokenizer& tokenizer, std::string_view prompt,
                            std::string_view completion) {
  const std::string text = std::string(prompt) + std::string(completion);
  TokenExample example{.tokens = tokenizer.begin(), .spans = {}};
  const auto begin = static_cast<int32_t>(example.tokens.size());
  int32_t target = std::max(begin, 1);
  for (const SpannedToken& token : tokenizer.encode_with_spans(text)) {
    example.tokens.push_back(token.id);
    if (token.end_byte <= std::ssize(prompt)) target = static_cast<int32_t>(example.tokens.size());
  }
  example.tokens.push_back(tokenizer.eos());
  example.spans = {{target, static_cast<int32_t>(example.tokens.size()), std::min(begin, target), target}};
  example.turn_begin = {std::min(begin, target)};
  if (begin < target) example.turn_begin.push_back(target);
  return example;
}

}  // namespace ripstop
