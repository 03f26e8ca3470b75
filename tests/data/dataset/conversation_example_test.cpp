#include "data/dataset/conversation_example.h"

#include <gtest/gtest.h>

#include "tests/data/small_tokenizer.h"

namespace ripstop {
namespace {

TEST(ConversationExample, SpansAreTheAnswersAndUsersMayBeCut) {
  EncodedConversation encoded;
  encoded.tokens.assign(40, 5);
  encoded.why_only_last = "because";
  encoded.turns = {{.role = Role::kSystem, .begin = 1, .end = 4},
                   {.role = Role::kUser, .begin = 4, .end = 10, .text_begin = 5, .text_end = 9},
                   {.role = Role::kAssistant, .begin = 10, .end = 16, .target_begin = 12},
                   {.role = Role::kSystem, .begin = 16, .end = 18},
                   {.role = Role::kUser, .begin = 18, .end = 24, .text_begin = 19, .text_end = 23},
                   {.role = Role::kUser, .begin = 24, .end = 24},
                   {.role = Role::kAssistant, .begin = 24, .end = 30, .target_begin = 30},
                   {.role = Role::kAssistant, .begin = 30, .end = 36, .target_begin = 32}};
  const TokenExample example = conversation_example(encoded);
  const std::vector<TargetSpan> expected = {{12, 16, 5, 9}, {30, 30, 19, 23}, {32, 36, 32, 32}};
  EXPECT_EQ(example.spans, expected);
  EXPECT_TRUE(are_valid(ExampleKind::kConversation, example.spans, 40));
  EXPECT_EQ(example.turn_begin, (std::vector<int64_t>{4, 10, 16, 18, 24, 30}))
      << "not the first system message";
  EXPECT_EQ(example.targets(), 8);
  EXPECT_EQ(example.why_only_last, "because");
}

TEST(ConversationExample, APromptAndItsCompletionAreOneText) {
  const Tokenizer tokenizer(small_model(), "small");
  for (const auto& [prompt, completion] : {std::pair<std::string, std::string>{"The harbour", " opened."},
                                           {"The harb", "our opened."},
                                           {"", "The"}}) {
    const TokenExample example = joined_example(tokenizer, prompt, completion);
    std::vector<int32_t> whole = tokenizer.encode(prompt + completion, tokenizer.begin());
    whole.push_back(tokenizer.eos());
    EXPECT_EQ(example.tokens, whole);
    ASSERT_TRUE(are_valid(ExampleKind::kConversation, example.spans, std::ssize(whole)));
    const TargetSpan& span = example.spans.at(0);
    EXPECT_EQ(span.target_end, std::ssize(whole));
    EXPECT_EQ(span.cut_begin, 1);
    EXPECT_EQ(span.cut_end, span.target_begin);
    // Tokens before the targets hold nothing of the completion.
    const std::string before = tokenizer.decode({whole.begin(), whole.begin() + span.target_begin});
    EXPECT_TRUE(prompt.starts_with(before)) << before;
    EXPECT_TRUE(prompt == before || prompt == "The harb") << before;
  }
}

}  // namespace
}  // namespace ripstop
