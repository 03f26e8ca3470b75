#include "data/chat/chat_template.h"

#include <algorithm>
#include <utility>

#include "data/text/utf8.h"

namespace ripstop {
namespace {

/// `text` of a ChatStyle with names such as {bos} replaced by their values.
std::string filled(std::string_view text,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> names) {
  std::string result(text);
  for (const auto& [name, value] : names) result = replace_all(result, name, value);
  return result;
}

/// The name of the token `key` in the tokenizer's files, else of the token `other`.
std::string token_text(const Tokenizer& tokenizer, const char* key, std::optional<int32_t> other) {
  for (const char* file : {kTokenizerConfigFile, kSpecialTokensFile})
    if (std::string name = tokenizer.files().token_name(file, key); !name.empty()) return name;
  return other ? tokenizer.piece(*other).name : "";
}

std::string_view strip_line_feeds(std::string_view text, bool at_begin, bool at_end) {
  while (at_begin && text.starts_with('\n')) text.remove_prefix(1);
  while (at_end && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

/// A message, divided into its thoughts and its answer.
struct Thought {
  std::string_view reasoning, answer;
};

Thought thought_of(std::string_view content) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const size_t close = content.find(kClose);
  if (close == std::string_view::npos) return {"", content};
  std::string_view reasoning = strip_line_feeds(content.substr(0, close), false, true);
  if (const size_t open = reasoning.rfind(kOpen); open != std::string_view::npos)
    reasoning.remove_prefix(open + kOpen.size());
  const std::string_view answer = content.substr(content.rfind(kClose) + kClose.size());
  return {strip_line_feeds(reasoning, true, false), strip_line_feeds(answer, true, false)};
}

std::string with_thoughts(std::string_view content, bool shows_them) {
  const Thought thought = thought_of(content);
  if (!shows_them) return std::string(thought.answer);
  return fmt::format("<think>\n{}\n</think>\n\n{}", thought.reasoning,
                     strip_line_feeds(thought.answer, true, false));
}

bool has_system(const Conversation& messages) {
  return !messages.empty() && messages.front().role == Role::kSystem;
}

}  // namespace

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer)
    : name_(tokenizer.files().choice.chat_template.value_or("")), style_(&chat_style(name_)) {
  const bool has_begin = tokenizer.begin().size() == 1, has_end = tokenizer.has_eos();
  const std::string bos =
      token_text(tokenizer, "bos_token", has_begin ? std::optional(tokenizer.begin().front()) : std::nullopt);
  const std::string eos =
      token_text(tokenizer, "eos_token", has_end ? std::optional(tokenizer.eos()) : std::nullopt);
  begin_ = filled(style_->begin, {{"{bos}", bos}});
  preface_ = filled(style_->preface, {{"{date}", tokenizer.files().choice.chat_date}});
  for (size_t role = 0; role < forms_.size(); ++role) {
    const auto fill = [&](std::string_view text) {
      return filled(text, {{"{role}", kWords<Role>[role]}, {"{bos}", bos}, {"{eos}", eos}});
    };
    forms_[role] = {fill(style_->forms[role].before), fill(style_->forms[role].after)};
  }
}

/// Refuses roles as the original template does.
void ChatTemplate::check_roles(const Conversation& messages) const {
  const bool refuses_all = style_->system == SystemPlace::kRefused;
  const size_t first = has_system(messages) && !refuses_all ? 1 : 0;
  for (size_t i = first; style_->alternates && i < messages.size(); ++i)
    if ((messages[i].role == Role::kUser) != ((i - first) % 2 == 0))
      throw ConversationError(
          fmt::format("the chat template {} wants user and assistant in turns{}", name_,
                      refuses_all ? ", and no system message" : " behind a system message"));
  const bool refuses_later = refuses_all || style_->system == SystemPlace::kLastUser;
  for (size_t i = first; refuses_later && i < messages.size(); ++i)
    if (messages[i].role == Role::kSystem)
      throw ConversationError(fmt::format("the chat template {} refuses a system message there", name_));
}

bool ChatTemplate::is_sequential(const Conversation& messages) const {
  return style_->thoughts != Thoughts::kLast &&
         (style_->system != SystemPlace::kLastUser || !has_system(messages));
}

std::vector<bool> ChatTemplate::shows_thoughts(const Conversation& messages) const {
  std::vector<bool> shows(messages.size(), style_->thoughts == Thoughts::kAlways);
  if (style_->thoughts != Thoughts::kLast || messages.empty()) return shows;
  // A tool's answer stands in a user's turn, but is no question.
  const auto is_question = [](const Message& message) {
    return message.role == Role::kUser &&
           !(message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>"));
  };
  size_t last_question = messages.size() - 1;
  for (size_t i = messages.size(); i-- > 0;)
    if (is_question(messages[i])) {
      last_question = i;
      break;
    }
  for (size_t i = last_question + 1; i < messages.size(); ++i)
    shows[i] = i + 1 == messages.size() || !thought_of(messages[i].content).reasoning.empty();
  return shows;
}

/// Appends `head` and the message's content to `text`, and says in `turn` where the content is.
void ChatTemplate::append_content(const Message& message, const std::string& head, bool shows_thoughts,
                                  RenderedTurn& turn, std::string& text) const {
  const bool thinks = style_->thoughts != Thoughts::kAsText && message.role == Role::kAssistant;
  const std::string whole = thinks ? with_thoughts(message.content, shows_thoughts) : head + message.content;
  const std::string_view kept = style_->trims ? strip(whole) : std::string_view(whole);
  const int64_t dropped = kept.data() - whole.data(), begin = std::ssize(text);
  turn.trimmed = std::max<int64_t>(dropped - std::ssize(head), 0);
  turn.text_end = begin + std::ssize(kept);
  turn.text_begin = std::min(begin + std::max<int64_t>(std::ssize(head) - dropped, 0), turn.text_end);
  text += kept;
}

RenderedChat ChatTemplate::render(const Conversation& messages, bool prompts) const {
  check_roles(messages);
  const auto& [before_system, after_system] = forms_[static_cast<size_t>(Role::kSystem)];
  RenderedChat chat{.text = begin_, .turns = {}};
  if (!has_system(messages) && style_->default_system)
    chat.text += before_system + preface_ + std::string(*style_->default_system) + after_system;
  const std::vector<bool> shows = shows_thoughts(messages);
  std::string system_text;  // text of a system message that goes into a user's turn
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool leads = i == 0 && message.role == Role::kSystem;
    RenderedTurn& turn = chat.turns.emplace_back();
    turn.begin = turn.end = turn.text_begin = turn.text_end = std::ssize(chat.text);
    if (message.role == Role::kSystem && style_->system != SystemPlace::kTurn &&
        !(leads && style_->system == SystemPlace::kFirst)) {
      if (leads)
        system_text =
            before_system +
            std::string(style_->trims_system ? strip(message.content) : std::string_view(message.content)) +
            after_system;
      continue;
    }
    const bool takes_system = message.role == Role::kUser &&
                              (style_->system == SystemPlace::kFirstUser ? i == 1 : i + 1 == messages.size());
    const auto& [before, after] = forms_[static_cast<size_t>(message.role)];
    chat.text += before;
    if (leads) chat.text += preface_;
    append_content(message, takes_system ? system_text : "", shows[i], turn, chat.text);
    chat.text += after;
    turn.end = std::ssize(chat.text);
  }
  if (prompts) chat.text += style_->prompt;
  return chat;
}

}  // namespace ripstop
