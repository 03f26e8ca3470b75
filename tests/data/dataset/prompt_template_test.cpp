// Prompts by a chat template. Others: tests/data/tokenizer/tokenizer_test.cpp.
#include "data/dataset/prompt_template.h"

#include <gtest/gtest.h>

#include "data/chat/encode_conversation.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

TEST(ChatPrompt, OnlyTheDocumentMayBeCut) {
  const ChatDirectory directory;
  for (const char* name : {"chatml", "llama3.1", "llama2", "mistral", "vicuna", "qwen2.5", "qwen3"}) {
    const Tokenizer tokenizer = directory.open(name);
    const PromptTemplate prompt(tokenizer, "Read:\n{document}\nNow");
    const EncodedPrompt encoded = prompt.encode("the sun. ");
    const auto part = [&](int64_t begin, int64_t end) {
      return shown(tokenizer, encoded.tokens, begin, end);
    };
    EXPECT_EQ(part(encoded.begin_tokens, encoded.separator_begin), "the sun. ") << name;
    EXPECT_EQ(part(0, encoded.begin_tokens), prompt.frame().before) << name;
    EXPECT_EQ(part(encoded.separator_begin, std::ssize(encoded.tokens)), prompt.frame().separator) << name;
    const Conversation asked = {{Role::kUser, "Read:\nthe sun. \nNow"}};
    EXPECT_EQ(encoded.tokens, tokenizer.encode(ChatTemplate(tokenizer).render(asked, true).text)) << name;
  }
}

TEST(ChatPrompt, APairIsTwoTurns) {
  const ChatDirectory directory;
  for (const char* name : {"chatml", "llama2", "vicuna", "qwen3", "qwen3-no-thinking"}) {
    const Tokenizer tokenizer = directory.open(name);
    const PromptTemplate prompt(tokenizer, std::string(kDefaultChatPrompt));
    const EncodedPrompt asked = prompt.encode("the sun");
    const TokenExample pair = prompt.encode_pair("the sun", "the moon");
    const EncodedConversation both =
        encode_conversation(ChatTemplate(tokenizer), tokenizer,
                            {{Role::kUser, "Summarize the following article in one sentence.\n\nthe sun"},
                             {Role::kAssistant, "the moon"}});
    EXPECT_EQ(pair.tokens, both.tokens) << name;
    const TargetSpan span{.target_begin = static_cast<int32_t>(asked.tokens.size()),
                          .target_end = static_cast<int32_t>(pair.tokens.size()),
                          .cut_begin = static_cast<int32_t>(asked.begin_tokens),
                          .cut_end = static_cast<int32_t>(asked.separator_begin)};
    EXPECT_EQ(pair.spans, std::vector{span}) << name;
    EXPECT_EQ(span.target_begin, both.turns.back().target_begin) << name;
    EXPECT_TRUE(std::equal(asked.tokens.begin(), asked.tokens.end(), pair.tokens.begin())) << name;
  }
}

// The template removes the white space that begins and ends the user's turn.
TEST(ChatPrompt, ADocumentMayLoseWhiteSpace) {
  const Tokenizer tokenizer = ChatDirectory().open("chatml-strict");
  const PromptTemplate prompt(tokenizer, "{document}");
  EXPECT_TRUE(prompt.frame().strips_begin && prompt.frame().strips_end);
  EXPECT_FALSE(PromptTemplate(tokenizer, "Read:\n{document}").frame().strips_begin);
  for (const auto& [document, kept] : {std::pair{" \n the sun \n", "the sun"}, {"  ", ""}, {"", ""}}) {
    const EncodedPrompt encoded = prompt.encode(document);
    EXPECT_EQ(shown(tokenizer, encoded.tokens, encoded.begin_tokens, encoded.separator_begin), kept);
    EXPECT_EQ(shown(tokenizer, encoded.tokens, 0, encoded.begin_tokens), "<B><|im_start|>user\n");
  }
}

// A token of the document's last letter and of the template stays.
TEST(ChatPrompt, ATokenOfDocumentAndTemplateIsTheTemplates) {
  const Tokenizer tokenizer = ChatDirectory().open("chatml");
  const EncodedPrompt encoded = PromptTemplate(tokenizer, "{document}\n\nTL;DR:").encode("\nthe sun.");
  EXPECT_EQ(shown(tokenizer, encoded.tokens, encoded.begin_tokens, encoded.separator_begin), "the sun");
}

TEST(ChatPrompt, AnAnswerThatChangesThePromptIsRefused) {
  const Tokenizer tokenizer = ChatDirectory().open("qwen3-no-thinking");
  const PromptTemplate prompt(tokenizer, std::string(kDefaultChatPrompt));
  EXPECT_THROW((void)prompt.encode_pair("the sun", "<think>the</think>moon"), ConversationError);
}

TEST(ChatPrompt, WithoutAChatTemplateTextMustFollowTheDocument) {
  const ChatDirectory directory;
  const Tokenizer tokenizer(directory.path());
  const auto make = [&] { const PromptTemplate prompt(tokenizer, std::string(kDefaultChatPrompt)); };
  EXPECT_HAS(error_of(make).what(), "must go on after {document}");
}

}  // namespace
}  // namespace ripstop
