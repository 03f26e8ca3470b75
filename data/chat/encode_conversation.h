#pragma once
#include <cstdint>
#include <span>

#include "data/chat/chat_template.h"
#include "data/chat/conversation.h"
#include "data/tokenizer/spanned_token.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// Index of the first token that begins at or behind `byte` of the encoded text; tokens.size() if none.
int64_t first_token_from(std::span<const SpannedToken> tokens, int64_t byte);
/// Number of tokens that end at or before `byte`.
int64_t tokens_up_to(std::span<const SpannedToken> tokens, int64_t byte);

/// Encodes the rendered conversation at once, as apply_chat_template of transformers does: the begin token is
/// there only if the template's text has it, and the name of a special token in a content becomes the token.
/// `tokenizer` must read special tokens.
///
/// The targets of an assistant's turn that counts are the last ChatStyle::prompt_targets bytes of its
/// generation prompt, and the rest of the turn. If a turn is rendered in another way once others follow, only
/// the last answer may have targets, and `why_only_last` says why. Throws ConversationError if the template
/// refuses the roles, and the errors of Tokenizer::encode_with_spans().
EncodedConversation encode_conversation(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                        const Conversation& messages);

}  // namespace ripstop
