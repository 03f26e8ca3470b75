#pragma once
#include <string_view>

#include "data/chat/conversation.h"
#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// An example with one span for each turn of the assistant that has tokens; there must be one. The text of
/// the user's latest turn since the previous span may be cut.
TokenExample conversation_example(EncodedConversation encoded);

/// The example of a prompt and its completion: Tokenizer::begin, both encoded as one text, Tokenizer::eos.
/// Targets are the tokens from index 1 on that end behind the prompt. Throws as Tokenizer::encode() does.
TokenExample joined_example(const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion);

}  // namespace ripstop
