// Conversations in JSON, as other programs write them.
#pragma once
#include <string>
#include <string_view>

#include "data/chat/conversation.h"
#include "data/text/json_reader.h"

namespace ripstop {

/// A conversation of a JSON object.
struct ReadConversation {
  Conversation turns;
  bool is_joined = false;  ///< a prompt and its completion are texts, joined without a template
  /// The first part that is no text, such as "tool_calls", and is missing in `turns`; "" if there is none.
  std::string not_text;
};

/// Reads `messages`, else `conversations`, else `prompt` with `completion`: lists of turns, or two texts. A
/// turn has `role` and `content`, or `from` and `value`; a content is a text, null (empty) or a list of
/// parts. Only turns of a `completion` count; in other lists, turns without `weight` 0. `object` must be
/// kept down to level kConversationLevels. Throws by `reader`.
ReadConversation read_conversation(const JsonReader& reader, const JsonReader::Json& object);
inline constexpr int kConversationLevels = 5;

/// Reads a conversation up to an answer that is to be written: as read_conversation(), where `completion` may
/// be absent, without the turns of the assistant at its end. Throws by `reader`, also for parts that are no
/// text, and if no turn of the user is the last.
ReadConversation read_question(const JsonReader& reader, JsonReader::Json object);

/// A JSON list of objects with `role`, `content` and, for a turn of the assistant that does not count,
/// `weight` 0.
std::string text_of_conversation(const Conversation& conversation);
/// The inverse of text_of_conversation().
Conversation conversation_of_text(const JsonReader& reader, std::string_view text);

/// Whether an object with these keys holds a conversation.
bool has_conversation(const JsonReader::Json& object);

}  // namespace ripstop
