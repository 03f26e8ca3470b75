#pragma once
#include <string_view>

#include "data/chat/conversation.h"
#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The example of an encoded conversation with a turn of the assistant: a span for each such turn, before
/// which the latest turn of the user may be cut.
TokenExample conversation_example(EncodedConversation encoded);

/// Tokenizer::begin, `prompt` and `completion` encoded as one text, Tokenizer::eos: a conversation of two
/// turns. Targets are the tokens that end behind the prompt. Throws the errors of Tokenizer::encode().
TokenExample joined_example(const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion);

}  // namespace ripstop
