#pragma once
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/words.h"

namespace ripstop {

enum class Role { kSystem, kUser, kAssistant };
/// The names of the roles, in templates and in JSON.
template <>
inline constexpr std::array<std::string_view, 3> kWords<Role> = {"system", "user", "assistant"};

/// One turn of a conversation.
struct Message {
  Role role = Role::kUser;
  std::string content;  ///< UTF-8
  bool counts = true;   ///< whether the tokens of an assistant's turn are targets; no meaning for other roles
};

using Conversation = std::vector<Message>;

/// Drops the turns behind the last one of the assistant that counts; all turns if there is none.
inline void end_with_answer(Conversation& turns) {
  while (!turns.empty() && (turns.back().role != Role::kAssistant || !turns.back().counts)) turns.pop_back();
}

/// The tokens of one turn, as indices in EncodedConversation::tokens. Every index is in at most one turn.
struct EncodedTurn {
  Role role = Role::kUser;
  int64_t begin = 0, end = 0;            ///< all of the turn, its header and end included
  int64_t target_begin = 0;              ///< the first target; `end` if there is none
  int64_t text_begin = 0, text_end = 0;  ///< the tokens that lie inside the message's content
};

struct EncodedConversation {
  std::vector<int32_t> tokens;     ///< with the begin token, if the template writes one
  std::vector<EncodedTurn> turns;  ///< in the order of the messages
  std::string why_only_last;       ///< why only the assistant's last turn may have targets; "" if all may
};

/// A conversation that a template does not accept; what() is the reason.
struct ConversationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ripstop
