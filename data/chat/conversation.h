#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ripstop {

enum class Role { kSystem, kUser, kAssistant };

/// One turn of a conversation.
struct Message {
  Role role = Role::kUser;
  std::string content;  ///< UTF-8
  bool counts = true;   ///< whether the tokens of an assistant's turn are targets; without meaning for others
};

using Conversation = std::vector<Message>;

/// The tokens of one turn, as indices in EncodedConversation::tokens. Every index is in at most one turn.
struct EncodedTurn {
  Role role = Role::kUser;
  int64_t begin = 0, end = 0;                ///< all of the turn, its header and end included
  int64_t target_begin = 0, target_end = 0;  ///< behind its generation prompt; equal if it has no target
  int64_t text_begin = 0, text_end = 0;      ///< a user's tokens of nothing but its content
};

struct EncodedConversation {
  std::vector<int32_t> tokens;     ///< begin tokens included
  std::vector<EncodedTurn> turns;  ///< in the order of the messages
  std::string only_last;           ///< why only the last assistant's turn may have targets; "" if all may
};

/// A conversation that a template does not accept; what() is the reason.
struct ConversationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ripstop
