#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/chat/conversation_json.h"
#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// No space at the end: it would become a token of its own, which ordinary text does not have there.
inline constexpr std::string_view kDefaultTemplate = "{document}\n\nTL;DR:";
/// The default inside a chat template.
inline constexpr std::string_view kDefaultChatPrompt =
    "Summarize the following article in one sentence.\n\n{document}";

struct TemplateParts {
  std::string before, separator;                  ///< texts before and after {document}
  bool strips_begin = false, strips_end = false;  ///< the chat template trims this end of the document
};

/// Cuts `prompt_template` at {document}. Throws Error(kUsage) if {document} is missing or occurs twice, or,
/// unless a chat template is around the prompt (`in_chat`), if the text after it is empty or ends in a space.
TemplateParts parse_template(const std::string& prompt_template, bool in_chat = false);

/// Replaces "\n" and "\t" in `typed`, two characters each, by a line feed and a tab.
std::string typed_template(std::string_view typed);

/// A prompt: Tokenizer::begin and the template with the document; with a chat template, a user's turn. Code
/// that cuts the document keeps the first begin_tokens tokens, and all from separator_begin on.
struct EncodedPrompt {
  std::vector<int32_t> tokens = {};
  int64_t separator_begin = 0;
  int64_t begin_tokens = 1;
  int64_t cut_tokens = 0;        ///< tokens of the older turns that a conversation lost
  bool is_conversation = false;  ///< loses its beginning, too, if cutting the document is not enough
};

/// Makes a prompt of a document, or an example of a pair. If the tokenizer's choice names a chat template,
/// the prompt is a user's turn, and the summary the answer of the assistant. Several threads may call const
/// members at once. Encoding throws as Tokenizer::encode() does.
class PromptTemplate {
 public:
  /// `tokenizer` must outlive this object. Throws the errors of parse_template() and ChatTemplate, and
  /// Error(kUsage) if the prompt of an empty document has no token.
  PromptTemplate(const Tokenizer& tokenizer, std::string prompt_template);

  /// The chat template; null if there is none.
  const ChatTemplate* chat() const { return chat_ ? &*chat_ : nullptr; }
  const std::string& text() const { return template_; }
  const std::string& separator() const { return parts_.separator; }
  /// All text around a document, including text of the chat template.
  TemplateParts frame() const;

  /// Returns Tokenizer::begin and the ids of the whole prompt, encoded in one piece; with a chat template,
  /// the ids of the user's turn and the generation prompt. A token that spans the end of the document and the
  /// start of the separator counts as separator.
  EncodedPrompt encode(std::string_view document) const;
  /// The prompt of a conversation that ends with a turn of the user (read_question). Above `longest` tokens,
  /// drops the oldest turns behind a system message, so that a turn of the user comes first. The text of the
  /// last turn counts as document. If question.is_joined, drops nothing; else needs a chat template. Throws
  /// ConversationError if the template refuses the roles.
  EncodedPrompt encode_question(const ReadConversation& question, int64_t longest) const;
  /// The prompt of `document`, then `summary` (Tokenizer::encode_continuation), then Tokenizer::eos; with a
  /// chat template, the turns of user and assistant. Throws ConversationError if the summary changes the
  /// rendered prompt, as a summary with thoughts may.
  TokenExample encode_pair(std::string_view document, std::string_view summary) const;
  /// Tokenizer::begin, `text`, Tokenizer::eos. Every token is a target except the begin tokens; without begin
  /// tokens, every token except the first.
  TokenExample encode_text(std::string_view text) const;

 private:
  int64_t find_separator(const std::vector<int32_t>& tokens, std::string_view text,
                         size_t separator_byte) const;

  RenderedChat render(std::string_view document, const std::string* summary) const;
  EncodedPrompt encode_chat(const RenderedChat& chat, std::string_view document, int64_t* target_begin) const;

  const Tokenizer* tokenizer_;
  std::string template_;
  std::optional<ChatTemplate> chat_;
  TemplateParts parts_;
  std::vector<int32_t> separator_ids_;  // ids of the separator in most prompts; empty if unknown
};

}  // namespace ripstop
