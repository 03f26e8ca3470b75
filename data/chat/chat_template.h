#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_style.h"
#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The date in llama3.1's system message, unless another one is given.
inline constexpr const char* kDefaultChatDate = "26 Jul 2024";

/// A message in a rendered text. Places are bytes in the text.
struct RenderedTurn {
  int64_t begin = 0, end = 0;            ///< all of the turn; equal if the message is left out or moved
  int64_t text_begin = 0, text_end = 0;  ///< the message's content
  int64_t trimmed = 0;                   ///< bytes that the content lost at its start
};

struct RenderedChat {
  std::string text;
  std::vector<RenderedTurn> turns;  ///< one for each message
};

/// Renders conversations as apply_chat_template of transformers does. Several threads may call const members
/// at once.
class ChatTemplate {
 public:
  /// The template that tokenizer.files().choice names. Throws Error(kUsage) if there is none of that name,
  /// Error(kInputData) for a damaged tokenizer_config.json or special_tokens_map.json.
  explicit ChatTemplate(const Tokenizer& tokenizer);

  const std::string& name() const { return name_; }
  /// ChatStyle::prompt_targets.
  int64_t prompt_targets() const { return style_->prompt_targets; }
  /// Whether rendered texts have a date.
  bool has_date() const { return !preface_.empty(); }
  /// Whether each message is rendered the same way whatever follows it.
  bool is_sequential(const Conversation& messages) const;
  /// The generation prompt, which stands before an answer; "" if there is none.
  std::string_view prompt() const { return style_->prompt; }
  /// Renders `messages`, followed by the generation prompt if `prompts`. Throws ConversationError if the
  /// template refuses the roles.
  RenderedChat render(const Conversation& messages, bool prompts) const;
  /// The template in Jinja, for chat_template.jinja: with it, apply_chat_template of transformers writes the
  /// same texts, and refuses the same roles.
  std::string jinja() const;

 private:
  void check_roles(const Conversation& messages) const;
  std::vector<bool> shows_thoughts(const Conversation& messages) const;
  void append_content(const Message& message, const std::string& head, bool shows_thoughts,
                      RenderedTurn& turn, std::string& text) const;

  std::string name_;
  const ChatStyle* style_;
  std::string begin_, preface_;
  std::array<std::array<std::string, 2>, 3> forms_;  // texts before and after a message, by role
};

}  // namespace ripstop
