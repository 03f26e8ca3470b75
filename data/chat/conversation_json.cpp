#include "data/chat/conversation_json.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr auto kRolesByName =
    std::to_array<std::pair<std::string_view, Role>>({{"system", Role::kSystem},
                                                      {"developer", Role::kSystem},
                                                      {"user", Role::kUser},
                                                      {"human", Role::kUser},
                                                      {"assistant", Role::kAssistant},
                                                      {"gpt", Role::kAssistant},
                                                      {"chatgpt", Role::kAssistant},
                                                      {"model", Role::kAssistant}});
// Roles and members for things other than text.
constexpr auto kToolRoles =
    std::to_array<std::string_view>({"tool", "tools", "function", "function_call", "function_response",
                                     "observation", "ipython", "environment", "tool_call", "tool_response"});
constexpr auto kToolMembers =
    std::to_array<std::string_view>({"tools", "functions", "tool_calls", "function_call", "audio", "images",
                                     "reasoning_content", "thinking"});

constexpr const char* kExampleOfTurns =
    R"(as in {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]})";

/// The first of kToolMembers that `object` has, not null, empty or false; "" if there is none.
std::string tool_member(const Json& object) {
  for (const std::string_view name : kToolMembers) {
    const auto found = object.find(std::string(name));
    if (found != object.end() && !found->empty() && *found != "" && *found != false) return std::string(name);
  }
  return "";
}

/// The member `name`, else `other`. Refuses an object with neither.
const Json& one_member(const JsonReader& reader, const Json& object, const char* name, const char* other) {
  return object.contains(name) || !object.contains(other) ? reader.member(object, name)
                                                          : reader.member(object, other);
}

/// The text of `content`. Describes the first part that is not text in `not_text`.
std::string text_of_content(const JsonReader& reader, const Json& content, std::string& not_text) {
  if (content.is_string()) return content;
  if (content.is_null()) return "";
  if (!content.is_array())
    reader.refuse("a content is of type {}, expected a text or a list of parts", content.type_name());
  std::string text;
  for (const Json& part : content) {
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    if (!part.is_object()) reader.refuse("a part of a content is of type {}", part.type_name());
    const std::string type = reader.text(part, "type", 256);
    if (type == "text")
      text += reader.text(part, "text", SIZE_MAX);
    else if (not_text.empty())
      not_text = fmt::format("a part of type {}", type);
  }
  return text;
}

/// Whether the turn's weight is 1 or absent. Refuses a weight other than 0 and 1.
bool counts(const JsonReader& reader, const Json& turn) {
  const Json* weight = reader.find(turn, "weight");
  if (weight == nullptr) return true;
  if (!weight->is_number() || (*weight != 0 && *weight != 1))
    reader.refuse_with("0 leaves the turn out of the loss, 1 counts it",
                       "a turn has the weight {}, 0 or 1 is possible", weight->dump());
  return *weight == 1;
}

void append_turns(const JsonReader& reader, const Json& list, bool all_count, ReadConversation& into) {
  for (const Json& turn : list) {
    if (!turn.is_object()) reader.refuse("a turn is of type {}, expected an object", turn.type_name());
    const Json& role = one_member(reader, turn, "role", "from");
    const auto found = std::ranges::find(kRolesByName, role.is_string() ? role.get<std::string>() : "",
                                         &decltype(kRolesByName)::value_type::first);
    std::string not_text = tool_member(turn);
    if (found == kRolesByName.end()) {
      if (!role.is_string() || std::ranges::find(kToolRoles, role.get<std::string>()) == kToolRoles.end())
        reader.refuse_with("system, user and assistant are known, also from: human and gpt",
                           "the role {} is not known", role.dump());
      not_text = fmt::format("the role {}", role.get<std::string>());
    }
    const bool weight = counts(reader, turn);
    if (not_text.empty())
      into.turns.push_back({found->second,
                            text_of_content(reader, one_member(reader, turn, "content", "value"), not_text),
                            all_count && weight});
    if (into.not_text.empty()) into.not_text = not_text;
  }
}

ReadConversation read_parts(const JsonReader& reader, const Json& object) {
  ReadConversation read;
  read.not_text = tool_member(object);
  for (const char* name : {"messages", "conversations"})
    if (object.contains(name)) {
      append_turns(reader, reader.list(object, name, 0, INT64_MAX), /*all_count=*/true, read);
      return read;
    }
  if (!has_conversation(object))
    reader.refuse_with("--source jsonl reads documents with summaries, --source text running text",
                       "no conversation: 'messages', 'conversations', or 'prompt' with 'completion' are "
                       "expected; the line has {}",
                       shown_names(object));
  const Json &prompt = object["prompt"], &completion = object["completion"];
  read.is_joined = prompt.is_string() && completion.is_string();
  if (read.is_joined) {
    read.turns = {{Role::kUser, prompt}, {Role::kAssistant, completion}};
    return read;
  }
  if (!prompt.is_array() || !completion.is_array())
    reader.refuse("'prompt' is of type {} and 'completion' of type {}, expected two texts or two lists",
                  prompt.type_name(), completion.type_name());
  append_turns(reader, prompt, /*all_count=*/false, read);
  append_turns(reader, completion, /*all_count=*/true, read);
  return read;
}

}  // namespace

ReadConversation read_conversation(const JsonReader& reader, const Json& object) {
  try {
    return read_parts(reader, object);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), error.hint().empty() ? kExampleOfTurns : error.hint());
  }
}

ReadConversation read_question(const JsonReader& reader, Json object) {
  if (object.contains("prompt") && !object.contains("completion"))
    object["completion"] = object["prompt"].is_string() ? Json("") : Json::array();
  ReadConversation read = read_conversation(reader, object);
  if (!read.not_text.empty())
    reader.refuse("tools and parts other than text are not read: {}", read.not_text);
  while (!read.turns.empty() && read.turns.back().role == Role::kAssistant) read.turns.pop_back();
  if (read.turns.empty() || read.turns.back().role != Role::kUser)
    reader.refuse("no turn of the user is the last, or before the last answer");
  return read;
}

std::string text_of_conversation(const Conversation& conversation) {
  Json list = Json::array();
  for (const Message& message : conversation) {
    Json turn{{"role", to_string(message.role)}, {"content", message.content}};
    if (message.role == Role::kAssistant && !message.counts) turn["weight"] = 0;
    list.push_back(std::move(turn));
  }
  return text_of_json(list);
}

Conversation conversation_of_text(const JsonReader& reader, std::string_view text) {
  const Json object = reader.parse(fmt::format("{{\"messages\":{}}}", text), kConversationLevels);
  return read_conversation(reader, object).turns;
}

}  // namespace ripstop
