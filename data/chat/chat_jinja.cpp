#include <fmt/format.h>

#include "data/chat/chat_template.h"
#include "data/text/json_reader.h"

namespace ripstop {
namespace {

/// A string of Jinja, whose escapes are JSON's.
std::string jinja_string(std::string_view text) {
  return text_of_json(std::string(text));
}

std::string put(std::string_view text) {
  return text.empty() ? "" : fmt::format("{{{{- {} -}}}}\n", jinja_string(text));
}

std::string refuse_if(const std::string& condition, std::string_view why) {
  return fmt::format("{{%- if {} -%}}{{{{- raise_exception({}) -}}}}{{%- endif -%}}\n", condition,
                     jinja_string(why));
}

/// Sets ns.question to the index of the last question, else of the last message.
constexpr std::string_view kFindQuestion = R"({%- set ns.question = messages | length - 1 -%}
{%- for message in messages -%}
{%- set text = message["content"] -%}
{%- set answers = text.startswith("<tool_response>") and text.endswith("</tool_response>") -%}
{%- if message["role"] == "user" and not answers -%}
{%- set ns.question = loop.index0 -%}
{%- endif -%}
{%- endfor -%}
)";

/// Divides an assistant's `text` into `thought` and `text`, and puts both together where thoughts are shown.
constexpr std::string_view kThink = R"({{%- if role == "assistant" -%}}
{{%- set parts = text.split("</think>") -%}}
{{%- set thought = parts[0].rstrip("\n").split("<think>")[-1].lstrip("\n") if parts | length > 1 else "" -%}}
{{%- set text = parts[-1].lstrip("\n") if parts | length > 1 else text -%}}
{{%- if {} -%}}
{{%- set text = "<think>\n" + thought + "\n</think>\n\n" + text.lstrip("\n") -%}}
{{%- endif -%}}
{{%- endif -%}}
)";

}  // namespace

std::string ChatTemplate::jinja() const {
  const SystemPlace place = style_->system;
  const bool moves = place == SystemPlace::kFirstUser || place == SystemPlace::kLastUser;
  const std::string first = place == SystemPlace::kRefused ? "0" : "lead";
  const auto& [before_system, after_system] = forms_[static_cast<size_t>(Role::kSystem)];
  std::string text =
      "{%- set lead = 1 if messages and messages[0][\"role\"] == \"system\" else 0 -%}\n"
      "{%- set ns = namespace(system=\"\", question=0) -%}\n";
  if (style_->thoughts == Thoughts::kLast) text += kFindQuestion;
  text += put(begin_);
  if (style_->default_system)
    text += "{%- if not lead -%}\n" +
            put(before_system + preface_ + std::string(*style_->default_system) + after_system) +
            "{%- endif -%}\n";
  text +=
      "{%- for message in messages -%}\n{%- set role = message[\"role\"] -%}\n"
      "{%- set text = message[\"content\"] -%}\n" +
      refuse_if("role not in [\"system\", \"user\", \"assistant\"]",
                "a role is none of system, user and assistant");
  if (style_->alternates)
    text += refuse_if(
        fmt::format("loop.index0 >= {0} and (role == \"user\") != ((loop.index0 - {0}) % 2 == 0)", first),
        "user and assistant must take turns");
  if (place == SystemPlace::kLastUser || place == SystemPlace::kRefused)
    text += refuse_if(fmt::format("role == \"system\" and loop.index0 >= {}", first),
                      "a system message must not stand there");
  if (style_->thoughts != Thoughts::kAsText)
    text += fmt::format(kThink, style_->thoughts == Thoughts::kAlways
                                    ? "true"
                                    : "loop.index0 > ns.question and (loop.last or thought)");
  if (moves)
    text += fmt::format(
        "{{%- if role == \"system\" and loop.first -%}}{{%- set ns.system = {} + text{} + {} -%}}"
        "{{%- endif -%}}\n{{%- if role == \"user\" and {} -%}}{{%- set text = ns.system + text -%}}"
        "{{%- endif -%}}\n",
        jinja_string(before_system), style_->trims_system ? " | trim" : "", jinja_string(after_system),
        place == SystemPlace::kFirstUser ? "loop.index0 == 1" : "loop.last");
  if (style_->trims) text += "{%- set text = text | trim -%}\n";
  for (size_t role = 0; role < forms_.size(); ++role) {
    const bool is_system = static_cast<Role>(role) == Role::kSystem;
    text += fmt::format("{{%- {} role == \"{}\" -%}}\n", is_system ? "if" : "elif", kWords<Role>[role]);
    if (is_system && moves) continue;
    const bool leads_alone = is_system && place == SystemPlace::kFirst;
    if (leads_alone) text += "{%- if loop.first -%}\n";
    text += put(forms_[role][0]);
    if (is_system && !preface_.empty()) text += "{%- if loop.first -%}\n" + put(preface_) + "{%- endif -%}\n";
    text += "{{- text -}}\n" + put(forms_[role][1]);
    if (leads_alone) text += "{%- endif -%}\n";
  }
  text += "{%- endif -%}\n{%- endfor -%}\n";
  if (!style_->prompt.empty())
    text += "{%- if add_generation_prompt -%}\n" + put(style_->prompt) + "{%- endif -%}\n";
  return text;
}

}  // namespace ripstop
