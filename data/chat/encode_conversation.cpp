#include "data/chat/encode_conversation.h"

#include <algorithm>
#include <optional>

#include "model/core/error.h"

namespace ripstop {
namespace {

/// The byte of chat.text at which the targets of message `i` begin; nullopt if its turn does not begin with
/// the generation prompt, or if later messages change how this message or an earlier one is rendered.
std::optional<int64_t> target_byte(const ChatTemplate& chat_template, const Conversation& messages, size_t i,
                                   const RenderedChat& chat) {
  const std::string& text = chat.text;
  if (chat_template.is_sequential(messages)) {  // then nothing needs to be rendered again for each turn
    const auto begin = static_cast<size_t>(chat.turns[i].begin);
    const std::string_view prompt = chat_template.prompt();
    if (text.compare(begin, prompt.size(), prompt) != 0) return std::nullopt;
    return chat.turns[i].begin + std::ssize(prompt) - chat_template.prompt_targets();
  }
  const auto last = messages.begin() + static_cast<std::ptrdiff_t>(i);
  const std::string before = chat_template.render({messages.begin(), last}, /*prompts=*/true).text;
  const std::string up_to = chat_template.render({messages.begin(), last + 1}, /*prompts=*/false).text;
  if (!up_to.starts_with(before) || !text.starts_with(up_to)) return std::nullopt;
  return std::ssize(before) - chat_template.prompt_targets();
}

}  // namespace

int64_t tokens_up_to(std::span<const SpannedToken> tokens, int64_t byte) {
  return std::ranges::upper_bound(tokens, byte, {}, &SpannedToken::end_byte) - tokens.begin();
}

int64_t first_token_from(std::span<const SpannedToken> tokens, int64_t byte) {
  const int64_t index = tokens_up_to(tokens, byte);
  if (index == std::ssize(tokens)) return index;
  const int64_t begin = index == 0 ? 0 : tokens[static_cast<size_t>(index) - 1].end_byte;
  return begin < byte ? index + 1 : index;
}

EncodedConversation encode_conversation(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                        const Conversation& messages) {
  RIPSTOP_CHECK(tokenizer.reads_special_tokens(), "{} reads special tokens as text", tokenizer.name());
  const RenderedChat chat = chat_template.render(messages, /*prompts=*/false);
  const std::vector<SpannedToken> spans = tokenizer.encode_with_spans(chat.text);
  EncodedConversation encoded;
  encoded.tokens.reserve(spans.size());
  for (const SpannedToken& token : spans) encoded.tokens.push_back(token.id);
  size_t last_answer = messages.size();
  while (last_answer > 0 && messages[--last_answer].role != Role::kAssistant) continue;
  for (size_t i = 0; i < messages.size(); ++i) {
    const RenderedTurn& turn = chat.turns[i];
    EncodedTurn& to = encoded.turns.emplace_back(EncodedTurn{
        .role = messages[i].role,
        .begin = first_token_from(spans, turn.begin),
        .end = first_token_from(spans, turn.end),
    });
    to.target_begin = to.end;
    to.text_begin = first_token_from(spans, turn.text_begin);
    to.text_end = std::max(to.text_begin, tokens_up_to(spans, turn.text_end));
    if (to.role != Role::kAssistant) continue;
    // Once the targets of one answer are unknown, only the last answer may have targets.
    std::optional<int64_t> targets;
    if (encoded.why_only_last.empty() || i == last_answer)
      targets = target_byte(chat_template, messages, i, chat);
    if (!targets) {
      encoded.why_only_last = fmt::format(
          "the chat template {} shows answers in another way once others follow", chat_template.name());
      // Without a generation prompt, the whole turn is its answer.
      if (chat_template.prompt().empty()) targets = turn.begin;
    }
    if (targets && messages[i].counts) to.target_begin = first_token_from(spans, *targets);
  }
  if (encoded.why_only_last.empty()) return encoded;
  for (size_t i = 0; i < messages.size(); ++i)
    if (i != last_answer) encoded.turns[i].target_begin = encoded.turns[i].end;
  return encoded;
}

}  // namespace ripstop
