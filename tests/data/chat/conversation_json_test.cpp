#include "data/chat/conversation_json.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

ReadConversation conversation_in(std::string_view line) {
  const JsonReader reader("train.jsonl:7", ExitCode::kInputData);
  return read_conversation(reader, reader.parse(line, kConversationLevels));
}

/// One letter for each turn, lower case if it does not count: "SUAa".
std::string roles(const Conversation& turns) {
  std::string letters;
  for (const Message& turn : turns)
    letters += turn.role == Role::kSystem ? 'S' : turn.role == Role::kUser ? 'U' : turn.counts ? 'A' : 'a';
  return letters;
}

void expect_bad_line(std::string_view line, const std::string& word) {
  const std::string what = what_of([&] { conversation_in(line); }, ExitCode::kInputData);
  EXPECT_TRUE(what.starts_with("train.jsonl:7: ")) << line << " gives " << what;
  EXPECT_HAS(what, word);
}

TEST(ConversationJson, ReadsTheFormsOfOtherPrograms) {
  ReadConversation got = conversation_in(
      R"({"prompt": "unused", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
          {"role": "assistant", "content": "a", "weight": 0}, {"role": "user", "content": null, "weight": null},
          {"role": "assistant", "content": "b", "weight": 1}]})");
  EXPECT_EQ(roles(got.turns), "SUaUA");
  EXPECT_EQ(got.turns[4].content, "b");
  EXPECT_EQ(got.turns[3].content, "");
  EXPECT_EQ(got.not_text, "");
  EXPECT_FALSE(got.is_joined);
  got = conversation_in(
      R"({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})");
  EXPECT_EQ(roles(got.turns), "UA");
  EXPECT_EQ(got.turns[0].content, "u");
  got = conversation_in(R"({"prompt": "The sky", "completion": " is blue."})");
  EXPECT_TRUE(got.is_joined);
  EXPECT_EQ(got.turns[1].content, " is blue.");
  // In lists, turns of the completion alone count.
  got = conversation_in(
      R"({"prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}],
          "completion": [{"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(roles(got.turns), "UaUA");
}

TEST(ConversationJson, PartsOfTextAreJoinedAndOthersNamed) {
  const auto with = [](const std::string& turn) {
    return conversation_in(fmt::format(
        R"({{"messages": [{{"role": "user", {}}}, {{"role": "assistant", "content": "a"}}]}})", turn));
  };
  const ReadConversation joined = with(R"("content": [{"type": "text", "text": "one "}, "two"])");
  EXPECT_EQ(joined.turns[0].content, "one two");
  EXPECT_EQ(joined.not_text, "");
  EXPECT_EQ(with(R"("content": [{"type": "image_url", "image_url": {"url": "x"}}])").not_text,
            "a part of type image_url");
  EXPECT_EQ(with(R"("content": null, "tool_calls": [{"id": 1}])").not_text, "tool_calls");
  EXPECT_EQ(with(R"("content": "u", "tool_calls": [], "function_call": null)").not_text, "");
  EXPECT_EQ(with(R"("content": "u", "reasoning_content": "hm")").not_text, "reasoning_content");
  EXPECT_EQ(conversation_in(R"({"messages": [{"role": "tool", "content": "4"}]})").not_text, "the role tool");
  EXPECT_EQ(conversation_in(R"({"messages": [], "tools": [{"type": "function"}]})").not_text, "tools");
  EXPECT_EQ(conversation_in(R"({"messages": [], "tools": []})").not_text, "");
}

TEST(ConversationJson, BadLinesAreRefused) {
  expect_bad_line(R"({"text": "a"})", "no conversation");
  expect_bad_line(R"({"messages": "a"})", "messages");
  expect_bad_line(R"({"messages": ["a"]})", "a turn is of type string");
  expect_bad_line(R"({"messages": [{"role": "bot", "content": "a"}]})", "the role \"bot\" is not known");
  expect_bad_line(R"({"messages": [{"role": 3, "content": "a"}]})", "the role 3");
  expect_bad_line(R"({"messages": [{"content": "a"}]})", "role");
  expect_bad_line(R"({"messages": [{"role": "user"}]})", "content");
  expect_bad_line(R"({"messages": [{"role": "user", "content": 5}]})", "a content is of type number");
  expect_bad_line(R"({"messages": [{"role": "user", "content": [5]}]})",
                  "a part of a content is of type number");
  expect_bad_line(R"({"messages": [{"role": "user", "content": [{"text": "a"}]}]})", "type");
  for (const char* weight : {"2", "0.5", "-1", "true", "\"1\"", "1e300"})
    expect_bad_line(
        fmt::format(R"({{"messages": [{{"role": "assistant", "content": "a", "weight": {}}}]}})", weight),
        "weight");
  expect_bad_line(R"({"prompt": "a", "completion": []})", "'prompt' is of type string");
  expect_bad_line(R"({"prompt": null, "completion": "b"})", "'prompt' is of type null");
}

TEST(ConversationJson, AQuestionEndsWithAUser) {
  const JsonReader reader("line", ExitCode::kInputData);
  const auto question = [&](const std::string& line) {
    return read_question(reader, reader.parse(line, kConversationLevels));
  };
  const std::string user = R"({"role": "user", "content": "a"})",
                    answer = R"({"role": "assistant", "content": "b"})";
  for (const std::string& line :
       {"{\"messages\": [" + user + "]}", "{\"messages\": [" + user + "," + answer + "," + answer + "]}",
        "{\"prompt\": [" + user + "]}", "{\"prompt\": [" + user + "], \"completion\": [" + answer + "]}"}) {
    const ReadConversation read = question(line);
    ASSERT_EQ(read.turns.size(), 1U) << line;
    EXPECT_EQ(read.turns[0].content, "a");
    EXPECT_FALSE(read.is_joined);
  }
  for (const char* line : {R"({"prompt": "a"})", R"({"prompt": "a", "completion": "b"})"}) {
    EXPECT_TRUE(question(line).is_joined);
    EXPECT_EQ(question(line).turns.at(0).content, "a");
  }
  EXPECT_THROW(question("{\"messages\": [" + answer + "]}"), Error);
  EXPECT_THROW(question(R"({"messages": [{"role": "tool", "content": "a"}]})"), Error);
  const std::string hint = error_of([&] { question(R"({"messages": [{"role": "user"}]})"); }).hint();
  EXPECT_TRUE(hint.starts_with("as in {\"messages\": [{\"role\": \"user\"")) << hint;
}

TEST(ConversationJson, TextsComeBack) {
  const Conversation turns = {{Role::kSystem, "s\n\"q\" \\"},
                              {Role::kUser, "\u6771"},
                              {Role::kAssistant, "a", false},
                              {Role::kUser, ""},
                              {Role::kAssistant, "b"}};
  const std::string text = text_of_conversation(turns);
  const Conversation back = conversation_of_text(JsonReader("test.h5", ExitCode::kInputData), text);
  ASSERT_EQ(back.size(), turns.size());
  EXPECT_EQ(roles(back), roles(turns));
  for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i].content, turns[i].content);
  EXPECT_EQ(text_of_conversation({{Role::kAssistant, "a", false}}),
            R"([{"role":"assistant","content":"a","weight":0}])");
  EXPECT_THROW(conversation_of_text(JsonReader("test.h5", ExitCode::kInputData), "[}"), Error);
}

}  // namespace
}  // namespace ripstop
