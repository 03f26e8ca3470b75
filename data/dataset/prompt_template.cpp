#include "data/dataset/prompt_template.h"

#include <algorithm>
#include <utility>

#include "data/chat/encode_conversation.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr std::string_view kDocument = "{document}";
constexpr const char* kDefaultHint = R"(the default is '{document}\n\nTL;DR:')";

std::optional<ChatTemplate> chat_of(const Tokenizer& tokenizer) {
  if (tokenizer.files().choice.chat_template.value_or("").empty()) return std::nullopt;
  return ChatTemplate(tokenizer);
}

}  // namespace

std::string typed_template(std::string_view typed) {
  return replace_all(replace_all(typed, "\\n", "\n"), "\\t", "\t");
}

TemplateParts parse_template(const std::string& prompt_template, bool in_chat) {
  const size_t at = prompt_template.find(kDocument);
  if (at == std::string::npos || prompt_template.find(kDocument, at + 1) != std::string::npos) {
    throw Error(ExitCode::kUsage,
                fmt::format("a template needs {{document}} exactly once, got '{}'", prompt_template),
                kDefaultHint);
  }
  TemplateParts parts{.before = prompt_template.substr(0, at),
                      .separator = prompt_template.substr(at + kDocument.size())};
  // The summary's first token includes a space. A second space would become a token of its own.
  if (!in_chat && (parts.separator.empty() || parts.separator.back() == ' ')) {
    throw Error(ExitCode::kUsage,
                fmt::format("a template must go on after {{document}} and not end in a space, got '{}'",
                            prompt_template),
                kDefaultHint);
  }
  return parts;
}

PromptTemplate::PromptTemplate(const Tokenizer& tokenizer, std::string prompt_template)
    : tokenizer_(&tokenizer),
      template_(std::move(prompt_template)),
      chat_(chat_of(tokenizer)),
      parts_(parse_template(template_, chat_.has_value())) {
  // Encode the separator after the letter "a". If no token spans both, the tokens after the letter are the
  // usual ids of the separator.
  const auto probe = tokenizer.encode_with_spans("a" + separator());
  for (size_t i = 0; i < probe.size(); ++i) {
    if (probe[i].end_byte != 1 || (i + 1 < probe.size() && probe[i + 1].end_byte == 1)) continue;
    for (size_t j = i + 1; j < probe.size(); ++j) separator_ids_.push_back(probe[j].id);
    break;
  }
  // If this prompt had no token, nothing would precede a summary whose document is empty or cut away.
  if (encode("").tokens.empty())
    throw Error(ExitCode::kUsage,
                fmt::format("the template '{}' has no token but those of {{document}}, as {} drops all of it "
                            "and has none that begins a text",
                            template_, tokenizer.name()),
                kDefaultHint);
}

/// The index of the first token with bytes of the separator, which begins at byte `separator_byte` of `text`.
/// `tokens`: Tokenizer::begin and the ids of `text`.
int64_t PromptTemplate::find_separator(const std::vector<int32_t>& tokens, std::string_view text,
                                       size_t separator_byte) const {
  const size_t begin = tokenizer_->begin().size();
  // Nearly every prompt ends in the separator's usual ids. Then no second encoding with spans is needed.
  const bool usual = !separator_ids_.empty() && tokens.size() > separator_ids_.size() + begin &&
                     std::equal(separator_ids_.rbegin(), separator_ids_.rend(), tokens.rbegin());
  if (usual) return static_cast<int64_t>(tokens.size() - separator_ids_.size());
  return static_cast<int64_t>(begin) + tokenizer_->tokens_before(text, static_cast<int64_t>(separator_byte));
}

/// The turn of the user with the generation prompt, or, with a summary, both turns.
RenderedChat PromptTemplate::render(std::string_view document, const std::string* summary) const {
  Conversation messages = {{Role::kUser, fmt::format("{}{}{}", parts_.before, document, parts_.separator)}};
  if (summary != nullptr) messages.push_back({Role::kAssistant, *summary});
  return chat_->render(messages, /*prompts=*/summary == nullptr);
}

/// The tokens of `chat`. Sets `target_begin`, if given, to the first token behind the generation prompt.
EncodedPrompt PromptTemplate::encode_chat(const RenderedChat& chat, std::string_view document,
                                          int64_t* target_begin) const {
  const std::vector<SpannedToken> spans = tokenizer_->encode_with_spans(chat.text);
  EncodedPrompt prompt;
  for (const SpannedToken& token : spans) prompt.tokens.push_back(token.id);
  const RenderedTurn& user = chat.turns.front();
  const int64_t begin = user.text_begin + std::ssize(parts_.before) - user.trimmed;
  const auto place = [&](int64_t byte) { return std::clamp(byte, user.text_begin, user.text_end); };
  prompt.begin_tokens = first_token_from(spans, place(begin));
  prompt.separator_begin =
      std::max(prompt.begin_tokens, tokens_up_to(spans, place(begin + std::ssize(document))));
  if (target_begin == nullptr) return prompt;
  const std::string before = render(document, nullptr).text;
  if (!chat.text.starts_with(before))
    throw ConversationError(
        fmt::format("the chat template {} changes the prompt of such an answer", chat_->name()));
  *target_begin = first_token_from(spans, std::ssize(before));
  return prompt;
}

TemplateParts PromptTemplate::frame() const {
  if (!chat_) return parts_;
  const std::string document(kDocument), text = render(document, nullptr).text;
  const size_t at = text.find(document);
  const std::string spaced = render("\t" + document + "\t", nullptr).text;
  return {.before = text.substr(0, at),
          .separator = text.substr(at + document.size()),
          .strips_begin = spaced.find("\t" + document) == std::string::npos,
          .strips_end = spaced.find(document + "\t") == std::string::npos};
}

EncodedPrompt PromptTemplate::encode(std::string_view document) const {
  if (chat_) return encode_chat(render(document, nullptr), document, nullptr);
  std::string text;
  text.reserve(parts_.before.size() + document.size() + separator().size());
  text.append(parts_.before).append(document).append(separator());
  EncodedPrompt prompt;
  prompt.tokens = tokenizer_->encode(text, tokenizer_->begin());
  prompt.begin_tokens = std::ssize(tokenizer_->begin());
  prompt.separator_begin = find_separator(prompt.tokens, text, text.size() - separator().size());
  return prompt;
}

EncodedPrompt PromptTemplate::encode_question(const ReadConversation& question, int64_t longest) const {
  const Conversation& turns = question.turns;
  EncodedPrompt prompt{.is_conversation = true};
  if (question.is_joined) {
    prompt.tokens = tokenizer_->encode(turns.front().content, tokenizer_->begin());
    prompt.begin_tokens = std::ssize(tokenizer_->begin());
    prompt.separator_begin = std::ssize(prompt.tokens);
    return prompt;
  }
  const RenderedChat chat = chat_->render(turns, /*prompts=*/true);
  const std::vector<SpannedToken> spans = tokenizer_->encode_with_spans(chat.text);
  size_t first = 0;
  while (turns[first].role == Role::kSystem) ++first;
  const int64_t head = first_token_from(spans, chat.turns[first].begin);
  int64_t begin = head;
  for (size_t i = first + 1; i < turns.size() && head + std::ssize(spans) - begin > longest; ++i)
    if (turns[i].role == Role::kUser && turns[i - 1].role == Role::kAssistant)
      begin = first_token_from(spans, chat.turns[i].begin);
  prompt.cut_tokens = begin - head;
  for (int64_t i = 0; i < std::ssize(spans); ++i)
    if (i < head || i >= begin) prompt.tokens.push_back(spans[static_cast<size_t>(i)].id);
  const RenderedTurn& last = chat.turns.back();
  prompt.begin_tokens = first_token_from(spans, last.text_begin) - prompt.cut_tokens;
  prompt.separator_begin =
      std::max(prompt.begin_tokens, tokens_up_to(spans, last.text_end) - prompt.cut_tokens);
  return prompt;
}

TokenExample PromptTemplate::encode_pair(std::string_view document, std::string_view summary) const {
  int64_t target_begin = 0;
  EncodedPrompt prompt;
  std::vector<int32_t> tokens;
  if (chat_) {
    const std::string answer(summary);
    prompt = encode_chat(render(document, &answer), document, &target_begin);
    tokens = std::move(prompt.tokens);
  } else {
    prompt = encode(document);
    target_begin = std::ssize(prompt.tokens);
    tokens = tokenizer_->encode_continuation(summary, std::move(prompt.tokens));
    tokens.push_back(tokenizer_->eos());
  }
  const TargetSpan span{
      .target_begin = static_cast<int32_t>(target_begin),
      .target_end = static_cast<int32_t>(tokens.size()),
      .cut_begin = static_cast<int32_t>(std::min(prompt.begin_tokens, prompt.separator_begin)),
      .cut_end = static_cast<int32_t>(prompt.separator_begin)};
  return {std::move(tokens), {span}};
}

TokenExample PromptTemplate::encode_text(std::string_view text) const {
  std::vector<int32_t> tokens = tokenizer_->encode(text, tokenizer_->begin());
  tokens.push_back(tokenizer_->eos());
  const auto first = static_cast<int32_t>(std::max<size_t>(tokenizer_->begin().size(), 1));
  const TargetSpan span{first, static_cast<int32_t>(tokens.size()), first, first};
  return {std::move(tokens), {span}};
}

}  // namespace ripstop
