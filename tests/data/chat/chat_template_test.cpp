#include "data/chat/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data/chat/chat_fixture.h"
#include "tests/expect_error.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

// tests/golden/make_chat_templates.py wrote the file.
class ChatTemplateGolden : public testing::Test {
 protected:
  void SetUp() override { golden_ = Json::parse(read_text(golden_file("chat_templates.json"))); }
  Json golden_;
  ChatDirectory directory_;
};

TEST_F(ChatTemplateGolden, RendersAsTransformersDoes) {
  ASSERT_EQ(golden_["templates"].size(), 19);
  for (const Json& row : golden_["templates"]) {
    const Tokenizer tokenizer = directory_.open(row["name"]);
    const ChatTemplate chat(tokenizer);
    // A name stands for the texts of that template.
    const auto& all = golden_["templates"];
    const Json& rendered = row["rendered"].is_array()
                               ? row["rendered"]
                               : std::ranges::find(all, row["rendered"], [](const Json& other) {
                                   return other["name"];
                                 })->at("rendered");
    ASSERT_EQ(rendered.size(), golden_["conversations"].size());
    for (size_t i = 0; i < rendered.size(); ++i) {
      Conversation messages;
      for (const std::string text : golden_["conversations"][i]) messages.push_back(message_of(text));
      SCOPED_TRACE(chat.name() + ": " + golden_["conversations"][i].dump());
      const Json& wanted = rendered[i];
      if (wanted.is_null()) {
        EXPECT_THROW((void)chat.render(messages, false), ConversationError);
        continue;
      }
      const RenderedChat whole = chat.render(messages, false);
      EXPECT_EQ(whole.text, std::string(wanted));
      EXPECT_EQ(chat.render(messages, true).text, std::string(wanted) + std::string(row["prompt"]));
      // The turns are in order, and the last ends the text.
      int64_t end = whole.turns.front().begin;
      for (const RenderedTurn& turn : whole.turns) {
        EXPECT_EQ(turn.begin, end);
        EXPECT_LE(turn.begin, turn.text_begin);
        EXPECT_LE(turn.text_begin, turn.text_end);
        EXPECT_LE(turn.text_end, turn.end);
        end = turn.end;
      }
      EXPECT_EQ(end, std::ssize(whole.text));
    }
  }
}

// tests/golden/make_chat_jinja.py wrote the file, and saw transformers render the conversations by it.
TEST_F(ChatTemplateGolden, GivesATextOfJinjaForTransformers) {
  const Json texts = Json::parse(read_text(golden_file("chat_jinja.json")));
  ASSERT_EQ(texts.size(), chat_template_names().size());
  for (const auto& [name, text] : texts.items()) {
    const std::string own = ChatTemplate(directory_.open(name)).jinja();
    EXPECT_EQ(own, std::string(text)) << name;
    // An export says by which template it was trained.
    const ChatDirectory exported;
    write_bytes(exported.path() / "chat_template.jinja", own);
    EXPECT_THROW((void)own_chat_template(read_tokenizer_files(exported.path())), Error);
    write_bytes(
        exported.path() / "ripstop_tokenizer.json",
        Json{{"file", "tokenizer.json"}, {"chat_template", name}, {"chat_date", "1 Jan 2025"}}.dump());
    EXPECT_EQ(own_chat_template(read_tokenizer_files(exported.path())), name);
    write_bytes(exported.path() / "chat_template.jinja", own + "\n");
    EXPECT_THROW((void)own_chat_template(read_tokenizer_files(exported.path())), Error);
  }
}

TEST_F(ChatTemplateGolden, SaysWhereTheTextOfAUserIs) {
  for (const Json& row : golden_["templates"]) {
    if (row["name"] == "mistral") continue;  // refuses the system message
    const Tokenizer tokenizer = directory_.open(row["name"]);
    const RenderedChat chat =
        ChatTemplate(tokenizer).render({{Role::kSystem, " S "}, {Role::kUser, "\u00a0 Q Q\n"}}, true);
    const RenderedTurn& turn = chat.turns.back();
    const std::string text = chat.text.substr(static_cast<size_t>(turn.text_begin),
                                              static_cast<size_t>(turn.text_end - turn.text_begin));
    EXPECT_HAS("\u00a0 Q Q\n", text);
    EXPECT_HAS(text, "Q Q") << row["name"];
    EXPECT_EQ(text.substr(0, 1) == "Q" ? 3 : 0, turn.trimmed) << row["name"];
  }
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif "
    "%}";

std::string own_name(const Json& config, const std::string& file = "") {
  const ChatDirectory directory(chat_tokenizer_json().dump(), config);
  if (!file.empty()) write_bytes(directory.path() / "chat_template.jinja", file);
  return own_chat_template(read_tokenizer_files(directory.path()));
}

TEST(ChatTemplate, IsKnownByItsWholeText) {
  EXPECT_EQ(own_name({{"chat_template", kChatMl}}), "chatml");
  EXPECT_EQ(
      own_name({{"chat_template",
                 {{{"name", "tool"}, {"template", "x"}}, {{"name", "default"}, {"template", kChatMl}}}}}),
      "chatml");
  EXPECT_EQ(own_name({{"chat_template", "x"}}, kChatMl), "chatml") << "the file wins";
  const auto refusal = [](const Json& config, const std::string& file = "") -> std::string {
    try {
      return "is " + own_name(config, file);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInputData);
      EXPECT_HAS(error.hint(), "--chat-template NAME says which one it is: chatml, chatml-strict, llama2, ");
      return error.what();
    }
  };
  std::string changed = kChatMl;
  changed[changed.size() / 2] ^= 1;
  EXPECT_HAS(refusal({{"chat_template", changed}}), "tokenizer_config.json is none of the 22 known texts");
  EXPECT_HAS(refusal({{"chat_template", kChatMl}}, changed), "chat_template.jinja is none of the");
  EXPECT_HAS(refusal({{"chat_template", std::string(kChatMl) + "\n"}}), "is none of the");
  EXPECT_HAS(refusal(Json::object()), "has a chat template");
  EXPECT_HAS(refusal({{"chat_template", {{{"name", "tool"}, {"template", kChatMl}}}}}),
             "has a chat template");
  EXPECT_THROW((void)own_name({{"chat_template", 1}}), Error);
}

TEST(ChatTemplate, ANameThatNoTemplateHasIsRefused) {
  expect_error([&] { (void)chat_style("gemma"); }, ExitCode::kUsage, "no chat template is named 'gemma'",
               ", qwen3, qwen3-no-thinking, qwen3-training");
}

TEST(ChatTemplate, TheDateIsTheChoices) {
  const Tokenizer tokenizer = ChatDirectory().open("llama3.1", "1 Jan 2025");
  EXPECT_HAS(ChatTemplate(tokenizer).render({{Role::kUser, "Q"}}, false).text,
             "Today Date: 1 Jan 2025\n\n<|eot_id|>");
}

// A data set, a run and an export carry the choice.
TEST(ChatTemplate, TheChoiceTravelsWithTheTokenizer) {
  const ChatDirectory directory;
  const Tokenizer tokenizer = directory.open("llama3.1", "1 Jan 2025");
  for (const auto& [name, bytes] : tokenizer.files().carried) write_bytes(directory.path() / name, bytes);
  EXPECT_EQ(ChatTemplate(Tokenizer(directory.path())).render({{Role::kUser, "Q"}}, true).text,
            ChatTemplate(tokenizer).render({{Role::kUser, "Q"}}, true).text);
  const Tokenizer without(directory.path(), {.chat_template = ""});
  EXPECT_EQ(without.files().choice.chat_template, "");
  EXPECT_EQ(without.files().find("ripstop_tokenizer.json")->find("chat_template"), std::string::npos);
}

}  // namespace
}  // namespace ripstop
