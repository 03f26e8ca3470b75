// The chat templates that ripstop renders, as rows of one table.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_files.h"

namespace ripstop {

/// Where the text of a leading system message goes, and what happens to a later one.
enum class SystemPlace {
  kTurn,       ///< each is a turn of its own
  kFirst,      ///< the leading one precedes the first turn; later ones are left out
  kFirstUser,  ///< in front of the user's first text; later ones are left out
  kLastUser,   ///< in front of the last message, if that is the user's; later ones are refused
  kRefused,
};

/// The place of thoughts (text between <think> and </think>) in an assistant's turn.
enum class Thoughts {
  kAsText,  ///< like any text
  kLast,    ///< in turns behind the last question; the last turn has a block even without thoughts
  kAlways,  ///< a block in each turn
};

/// The texts before and after a message.
struct ChatForm {
  std::string_view before, after;
};

/// One template. {role}, {bos} and {eos} in texts stand for a role, the begin token and the end token.
struct ChatStyle {
  std::string_view name;
  std::string_view begin = "";         ///< text before all messages
  std::array<ChatForm, 3> forms = {};  ///< by Role
  std::string_view prompt = "";        ///< the generation prompt
  int64_t prompt_targets = 0;          ///< bytes at the end of `prompt` that are targets, too
  std::string_view end_token = "";     ///< the token that ends an answer; "": the tokenizer's end token
  SystemPlace system = SystemPlace::kTurn;
  Thoughts thoughts = Thoughts::kAsText;
  bool trims = false;         ///< contents lose white space at their ends
  bool trims_system = false;  ///< for kFirstUser: trims the system text alone, before the user's text follows
  bool alternates = false;    ///< only turns 0, 2, .. behind a leading system message are the user's
  std::string_view preface = "";  ///< text before a leading or default system message; {date} is the date
  std::optional<std::string_view> default_system = {};  ///< the system message if the first turn is none
};

/// The names of all templates.
std::vector<std::string> chat_template_names();

/// The row with this name. Throws Error(kUsage) with all names if there is none.
const ChatStyle& chat_style(std::string_view name);

/// The text of the template in chat_template.jinja, else in tokenizer_config.json; "" if there is none.
std::string chat_template_text(const TokenizerFiles& files);

/// The name of the template whose text chat_template_text() returns. The text must equal a known text byte by
/// byte, or what an export of ripstop has (ChatTemplate::jinja). Throws Error(kInputData), with all names,
/// for another text or without one, and the errors of Tokenizer.
std::string own_chat_template(const TokenizerFiles& files);

}  // namespace ripstop
