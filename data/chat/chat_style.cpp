#include "data/chat/chat_style.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "data/chat/chat_template.h"
#include "data/files/hash.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr std::array<ChatForm, 3> each(std::string_view before, std::string_view after) {
  return {{{before, after}, {before, after}, {before, after}}};
}

constexpr ChatStyle variant(ChatStyle style, std::string_view name, auto change) {
  style.name = name;
  change(style);
  return style;
}
constexpr auto alternate = [](ChatStyle& style) { style.trims = style.alternates = true; };

constexpr ChatStyle kChatMl = {.name = "chatml",
                               .forms = each("<|im_start|>{role}\n", "<|im_end|>\n"),
                               .prompt = "<|im_start|>assistant\n",
                               .end_token = "<|im_end|>"};
constexpr ChatStyle kLlama2 = {
    .name = "llama2",
    .forms = {{{"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"{bos}[INST] ", " [/INST]"}, {" ", " {eos}"}}},
    .system = SystemPlace::kFirstUser,
    .trims = true,
    .alternates = true};
constexpr ChatStyle kLlama3 = {.name = "llama3",
                               .begin = "{bos}",
                               .forms = each("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"),
                               .prompt = "<|start_header_id|>assistant<|end_header_id|>\n\n",
                               .end_token = "<|eot_id|>",
                               .trims = true};
constexpr ChatStyle kZephyr = {
    .name = "zephyr", .forms = each("<|{role}|>\n", "{eos}\n"), .prompt = "<|assistant|>\n"};
constexpr ChatStyle kQwen25 = variant(kChatMl, "qwen2.5", [](ChatStyle& style) {
  style.default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
});
constexpr ChatStyle kQwen3 =
    variant(kChatMl, "qwen3", [](ChatStyle& style) { style.thoughts = Thoughts::kLast; });

constexpr std::array kStyles = {
    kChatMl,
    variant(kChatMl, "chatml-strict",
            [](ChatStyle& style) {
              alternate(style);
              style.begin = "{bos}";
            }),
    kLlama2,
    variant(kLlama2, "llama2-strict", [](ChatStyle& style) { style.trims_system = true; }),
    kLlama3,
    variant(kLlama3, "llama3-strict", alternate),
    variant(kLlama3, "llama3.1",
            [](ChatStyle& style) {
              style.preface = "Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n";
              style.default_system = "";
            }),
    ChatStyle{.name = "mistral",
              .begin = "{bos}",
              .forms = {{{"", ""}, {"[INST] ", " [/INST]"}, {"", "{eos}"}}},
              .system = SystemPlace::kRefused,
              .alternates = true},
    ChatStyle{.name = "mistral-strict",
              .begin = "{bos}",
              .forms = {{{"", "\n\n"}, {"[INST] ", " [/INST]"}, {" ", "{eos}"}}},
              .system = SystemPlace::kFirst,
              .trims = true,
              .alternates = true},
    ChatStyle{.name = "mistral-nemo",
              .begin = "{bos}",
              .forms = {{{"", "\n\n"}, {"[INST]", "[/INST]"}, {"", "{eos}"}}},
              .system = SystemPlace::kLastUser,
              .alternates = true},
    kZephyr,
    variant(kZephyr, "zephyr-strict", alternate),
    ChatStyle{.name = "vicuna",
              .begin = "{bos}",
              .forms = {{{"", "\n\n"}, {"USER: ", "\n"}, {"ASSISTANT: ", "{eos}\n"}}},
              .prompt = "ASSISTANT:",
              .system = SystemPlace::kFirst,
              .trims = true,
              .alternates = true},
    variant(kChatMl, "smollm2",
            [](ChatStyle& style) {
              style.default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
            }),
    kQwen25,
    // TRL marks the line end of the header as the assistant's.
    variant(kQwen25, "qwen2.5-training", [](ChatStyle& style) { style.prompt_targets = 1; }),
    kQwen3,
    variant(kQwen3, "qwen3-no-thinking",
            [](ChatStyle& style) { style.prompt = "<|im_start|>assistant\n<think>\n\n</think>\n\n"; }),
    variant(kQwen3, "qwen3-training", [](ChatStyle& style) { style.thoughts = Thoughts::kAlways; }),
};

struct KnownText {
  std::string_view sha256, name;
};

constexpr std::array<KnownText, 22> kKnownTexts = {{
    // OpenHermes 2.5 Mistral 7B and many others
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "chatml"},
    // the same with a backslash and the letter n for line feeds
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml"},
    // chujiezheng/chat_templates: chatml
    {"d039a08fa6d27111d66ad6d7a3cffb375c39b75f53d5336b62c7d2cb653e13ce", "chatml-strict"},
    // Llama 2 Chat
    {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", "llama2"},
    // chujiezheng/chat_templates: llama-2-chat
    {"9a346812565526c05653f11e892cc768fec8334a75ee3b00c493967a20669556", "llama2-strict"},
    // Llama 3 Instruct
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama3"},
    // TRL's training template of Llama 3
    {"9dce981e2954cf77d4d0ad2dbacf8006a5fda34a0bdf4923075a933d08b69470", "llama3"},
    // chujiezheng/chat_templates: llama-3-instruct
    {"2245cc67c534ac1546810b7b816ee2f61c2bab7a19034d7134b3883d340aebdb", "llama3-strict"},
    // Llama 3.1 and 3.3 Instruct
    {"e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65", "llama3.1"},
    // Llama 3.2 Instruct
    {"5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4", "llama3.1"},
    // Mistral 7B Instruct v0.2, Mixtral 8x7B Instruct v0.1
    {"26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", "mistral"},
    // chujiezheng/chat_templates: mistral-instruct
    {"232adf4453f958f10a5bc3b914754ba5b78beb0f9b13d12ade96ce6590d2a922", "mistral-strict"},
    // Mistral Nemo Instruct 2407
    {"e4676cb56dffea7782fd3e2b577cfaf1e123537e6ef49b3ec7caa6c095c62272", "mistral-nemo"},
    // TinyLlama 1.1B Chat v1.0, Zephyr 7B beta
    {"66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362", "zephyr"},
    // chujiezheng/chat_templates: zephyr
    {"0f6b4afa9bae6fdbf5a7db1322e980924690cf5ced0a9eada2bad3618052071e", "zephyr-strict"},
    // chujiezheng/chat_templates: vicuna
    {"7e790c457ea734e6ec959ad1d003e5f421bed352a5828d9fc4bbf61e7c1a980c", "vicuna"},
    // SmolLM2 Instruct
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", "smollm2"},
    // Qwen2.5 Instruct
    {"cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f", "qwen2.5"},
    // TRL's training template of Qwen2.5
    {"0cd86fb80f520885e35040a8df321540e729d3358da41f27cf74d33103d94f62", "qwen2.5-training"},
    // Qwen3
    {"a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", "qwen3"},
    // Qwen3 0.6B, an earlier text
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "qwen3"},
    // TRL's training template of Qwen3
    {"1d944ff8f268b611abb296cdd24d0f51981eef1c8647ac321c3a0258f61eb6c9", "qwen3-training"},
}};

std::string names_hint() {
  return fmt::format("--chat-template NAME says which one it is: {}", fmt::join(chat_template_names(), ", "));
}

/// The template's text in tokenizer_config.json: `chat_template`, or, if this is a list, the template named
/// "default"; "" if there is none.
std::string text_in_config(const TokenizerFiles& files) {
  const std::string* const bytes = files.find(kTokenizerConfigFile);
  if (bytes == nullptr) return "";
  const JsonReader reader((files.path.parent_path() / kTokenizerConfigFile).string(), ExitCode::kInputData);
  const JsonReader::Json json = reader.parse(*bytes);
  const JsonReader::Json* const value = reader.find(json, "chat_template");
  if (value == nullptr) return "";
  if (!value->is_array()) return reader.text(json, "chat_template", bytes->size());
  for (const JsonReader::Json& row : *value)
    if (row.is_object() && reader.text(row, "name", kMostTokenNameBytes) == "default")
      return reader.text(row, "template", bytes->size());
  return "";
}

/// The name of the template in an export's kTokenizerChoiceFile, if `text` is the text of this template with
/// the default date; else "".
std::string name_of_export(const TokenizerFiles& files, const std::string& text) {
  const std::string name = (files.questions ? *files.questions : files.choice).chat_template.value_or("");
  if (std::ranges::find(kStyles, name, &ChatStyle::name) == kStyles.end()) return "";
  const Tokenizer tokenizer(files.path, {.chat_template = name, .chat_date = kDefaultChatDate});
  return ChatTemplate(tokenizer).jinja() == text ? name : "";
}

}  // namespace

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const ChatStyle& style : kStyles) names.emplace_back(style.name);
  return names;
}

const ChatStyle& chat_style(std::string_view name) {
  const auto found = std::ranges::find(kStyles, name, &ChatStyle::name);
  if (found == kStyles.end())
    throw Error(ExitCode::kUsage, fmt::format("no chat template is named '{}'", name), names_hint());
  return *found;
}

std::string chat_template_text(const TokenizerFiles& files) {
  // transformers, too, prefers the file to tokenizer_config.json.
  const std::string* const file = files.find(kChatTemplateFile);
  return file != nullptr ? *file : text_in_config(files);
}

std::string own_chat_template(const TokenizerFiles& files) {
  const std::string text = chat_template_text(files);
  if (text.empty())
    throw Error(ExitCode::kInputData,
                fmt::format("no file beside {} has a chat template", files.path.string()), names_hint());
  const auto known = std::ranges::find(kKnownTexts, sha256_hex(text), &KnownText::sha256);
  if (known != kKnownTexts.end()) return std::string(known->name);
  if (std::string name = name_of_export(files, text); !name.empty()) return name;
  throw Error(
      ExitCode::kInputData,
      fmt::format("the chat template of {} is none of the {} known texts",
                  (files.path.parent_path() /
                   (files.find(kChatTemplateFile) != nullptr ? kChatTemplateFile : kTokenizerConfigFile))
                      .string(),
                  kKnownTexts.size()),
      names_hint());
}

}  // namespace ripstop
