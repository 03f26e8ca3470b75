// Conversations in JSON, as other programs write them.
#pragma once
#include <string>
#include <string_view>

#include "data/chat/conversation.h"
#include "data/text/json_reader.h"

namespace ripstop {

/// A conversation read from a JSON object.
struct ReadConversation {
  Conversation turns;
  bool is_joined = false;  ///< a prompt and its completion are texts, joined without a template
  /// The first thing that is not text, such as "tool_calls"; then `turns` is incomplete. "" if there is none.
  std::string not_text;
};

/// Reads `messages`, else `conversations`, else `prompt` with `completion`: lists of turns, or two texts. A
/// turn has `role` and `content`, or `from` and `value`; a content is a text, null (empty) or a list of
/// parts. Turns count, except turns with `weight` 0 and turns of a `prompt`. Throws the Error of `reader`.
/// Parse `object` with kConversationLevels as `kept_levels`, or more.
ReadConversation read_conversation(const JsonReader& reader, const JsonReader::Json& object);
inline constexpr int kConversationLevels = 5;

/// Reads a conversation whose next answer a model will write. Differs from read_conversation(): `completion`
/// may be absent, and turns of the assistant at the end are dropped. Throws the Error of `reader`, also for
/// parts that are not text, and if the last turn left is not the user's.
ReadConversation read_question(const JsonReader& reader, JsonReader::Json object);

/// A JSON list of objects with `role`, `content` and, for a turn of the assistant that does not count,
/// `weight` 0.
std::string text_of_conversation(const Conversation& conversation);
/// The inverse of text_of_conversation().
Conversation conversation_of_text(const JsonReader& reader, std::string_view text);

/// Whether `object` has `messages`, `conversations`, or `prompt` with `completion`.
bool has_conversation(const auto& object) {
  return object.contains("messages") || object.contains("conversations") ||
         (object.contains("prompt") && object.contains("completion"));
}

}  // namespace ripstop
