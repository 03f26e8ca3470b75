// prepare --source messages.
#include <gtest/gtest.h>

#include <random>

#include "data/chat/conversation_json.h"
#include "data/chat/encode_conversation.h"
#include "data/dataset/dataset_directory.h"
#include "data/dataset/sequence_reader.h"
#include "data/dataset/token_dataset.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/data/prepare_fixture.h"

namespace ripstop {
namespace {

class PrepareMessages : public PrepareTest {
 protected:
  void write(const std::string& file, const std::vector<Conversation>& conversations) {
    std::string lines;
    for (const Conversation& each : conversations)
      lines += fmt::format("{{\"messages\": {}}}\n", text_of_conversation(each));
    write_bytes(scratch_ / "m" / file, lines);
    options_.source.inputs = {scratch_ / "m"};
    options_.tokenizer = chat_.path();
  }
  const ChatDirectory chat_;
};

TEST_F(PrepareMessages, PromptsWithCompletionsAreConversationsWithoutATemplate) {
  write_bytes(
      scratch_ / "m/train.jsonl",
      "{\"prompt\": \"The harbour opened\", \"completion\": \" on Monday.\"}\n"
      "{\"prompt\": \"The harbour opened\", \"completion\": \" on Monday.\", \"id\": \"twice\"}\n"
      "{\"prompt\": \"The market\", \"completion\": \" \"}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"tool\", \"content\": \"4\"}, "
      "{\"role\": \"assistant\", \"content\": \"4\"}]}\n"
      "{\"prompt\": \"a\\u0000\", \"completion\": \" b\"}\n");
  write_bytes(scratch_ / "m/test.jsonl",
              "{\"prompt\": \"new\", \"completion\": \" police\", \"id\": \"t\"}\n");
  options_.source.inputs = {scratch_ / "m"};
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.source.kind, SourceKind::kMessages);
  const SplitReport& split = report.splits[0];
  EXPECT_EQ(split.examples, 1);
  EXPECT_EQ(split.skipped.of(Skip::kDuplicate), 1);
  EXPECT_EQ(split.skipped.of(Skip::kNoAnswer), 2);
  EXPECT_EQ(split.skipped.of(Skip::kNotText), 1);
  EXPECT_EQ(split.skipped.of(Skip::kNul), 1);
  EXPECT_EQ(report.skipped().total(), 5);
  const TokenDataset train(scratch_ / "out/train.h5"), test(scratch_ / "out/test.h5");
  EXPECT_EQ(train.header().kind, ExampleKind::kConversation);
  EXPECT_EQ(train.turns(0, train.tokens()), 2);
  EXPECT_EQ(split.targets, train.tokens() - train.target_begin(0));
  EXPECT_EQ(Tokenizer(scratch_ / "out").decode(tokens_of(train, 0)), "The harbour opened on Monday.");
  const ExampleText text = test.text(0, 1).at(0);
  EXPECT_EQ(text.id, "t");
  EXPECT_EQ(text.messages, R"([{"role":"user","content":"new"},{"role":"assistant","content":" police"}])");
  options_.output = scratch_ / "strict";
  options_.strict = true;
  expect_refused(ExitCode::kInputData, "train.jsonl:2");
}

TEST_F(PrepareMessages, TurnsNeedAChatTemplate) {
  write_bytes(scratch_ / "m/train.jsonl",
              "\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
              "\"content\": \"b\"}]}\n");
  options_.source.inputs = {scratch_ / "m"};
  expect_refused(ExitCode::kInputData, "train.jsonl:2: turns need a chat template");
  write_bytes(scratch_ / "m/train.jsonl",
              "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0.5}]}\n");
  expect_refused(ExitCode::kInputData, "train.jsonl:1: a turn has the weight 0.5");
}

// A model would learn to write the end as text, and never stop.
TEST_F(PrepareMessages, TheEndOfAnswersIsAToken) {
  write("train.jsonl", {{message_of("uthe sun?"), message_of("aNo.")}});
  const ChatDirectory without(byte_level_json().dump());
  options_.tokenizer = without.path();
  options_.chat_template = "llama3";
  expect_refused(ExitCode::kInputData, "ends answers with '<|eot_id|>', which is no token of ");
  options_.choice.eos_token = "<|im_end|>";
  expect_refused(ExitCode::kInputData, "ends answers with '<|eot_id|>', which is no token of ");
}

TEST_F(PrepareMessages, TurnsBecomeTokensByTheTemplate) {
  const Conversation asked = {message_of("sBe brief."), message_of("uthe sun?"), message_of("aNo."),
                              message_of("uthe moon?"), message_of("aYes.")};
  const Conversation refused = {message_of("uone"), message_of("utwo"), message_of("aYes.")};
  write("train.jsonl", {asked, refused});
  Conversation other = asked;
  other.back().content = "Maybe.";
  Conversation longer = other;  // turns behind the last answer that counts are left out
  longer.push_back(message_of("uthe tide?"));
  longer.push_back(message_of("aNever."));
  longer.back().counts = false;
  write("test.jsonl", {longer});
  for (const char* name : {"chatml", "llama2", "llama3", "zephyr", "qwen2.5"}) {
    options_.chat_template = name;
    options_.output = scratch_ / name;
    const PrepareReport report = prepare(options_);
    const TokenDataset train(scratch_ / name / "train.h5"), test(scratch_ / name / "test.h5");
    const Tokenizer tokenizer(scratch_ / name);
    require_dataset_tokenizer(train, tokenizer);
    EXPECT_EQ(train.header().chat_template, name);
    const bool alternates = std::string_view(name) == "llama2";
    EXPECT_EQ(report.splits[0].skipped.of(Skip::kRefused), alternates) << name;
    if (alternates) {
      EXPECT_HAS(report.first_skipped, "train.jsonl:2: the chat template refuses it: ");
    }
    const EncodedConversation encoded = encode_conversation(ChatTemplate(tokenizer), tokenizer, other);
    EXPECT_EQ(tokens_of(test, 0), encoded.tokens) << name;
    ASSERT_EQ(test.spans(0).size(), 2u);
    for (size_t k = 0; k < 2; ++k) {
      const EncodedTurn &user = encoded.turns[1 + 2 * k], &answer = encoded.turns[2 + 2 * k];
      const TargetSpan& span = test.spans(0)[k];
      EXPECT_EQ(span.target_begin, answer.target_begin) << name;
      EXPECT_EQ(span.target_end, answer.end) << name;
      EXPECT_EQ(span.cut_begin, user.text_begin) << name;
      EXPECT_EQ(span.cut_end, user.text_end) << name;
    }
    const ExampleText text = checked_text(test, tokenizer, 0, 1).at(0);
    EXPECT_EQ(text.summary, "Maybe.");
    EXPECT_EQ(text.document, "Be brief.\n\nthe sun?\n\nNo.\n\nthe moon?");
  }
}

TEST_F(PrepareMessages, AnswersThatChangeLaterCountOnlyAsTheLast) {
  const Conversation asked = {message_of("uthe sun?"), message_of("aNo."), message_of("uthe moon?"),
                              message_of("aYes.")};
  write("train.jsonl", {asked});
  options_.chat_template = "qwen3";
  prepare(options_);
  const TokenDataset train(scratch_ / "out/train.h5");
  EXPECT_HAS(train.header().why_only_last, "qwen3");
  EXPECT_EQ(SequenceReader(train, 400, LossOn::kLast).without_targets(), 0);
  expect_error([&] { const SequenceReader reader(train, 400, LossOn::kAuto); }, ExitCode::kUsage,
               train.header().why_only_last, "data.loss_on=last");
}

// Every template, on turns in any order that it accepts, with texts that spell its marks.
TEST_F(PrepareMessages, AnyConversationIsAValidExample) {
  std::mt19937 random(3);
  const std::vector<std::string> texts = {"",        " ",  "the sun", "<|im_start|>",
                                          "[/INST]", "\n", "No. <E>", "a  b "};
  std::vector<Conversation> conversations;
  for (int i = 0; i < 40; ++i) {
    Conversation& turns = conversations.emplace_back();
    if (random() % 3 == 0) turns.push_back({Role::kSystem, texts[random() % texts.size()]});
    for (size_t k = random() % 6 + 1; k > 0; --k) {
      if (random() % 9 > 0) turns.push_back({Role::kUser, texts[random() % texts.size()]});
      if (random() % 9 > 0)
        turns.push_back({Role::kAssistant, texts[random() % texts.size()], random() % 5 > 0});
    }
  }
  write("train.jsonl", conversations);
  for (const std::string& name : chat_template_names()) {
    options_.chat_template = name;
    options_.output = scratch_ / name;
    const PrepareReport report = prepare(options_);
    const TokenDataset train(options_.output / "train.h5");
    EXPECT_GT(train.examples(), 2) << name;
    EXPECT_EQ(report.splits[0].examples + report.skipped().total(), 40) << name;
    for (int64_t length = 4; length < 90; length += 9) {
      const SequenceReader reader(train, length, LossOn::kLast);
      for (int64_t i = 0; i < train.examples(); ++i)
        reader.read({i, 0, reader.rows()[static_cast<size_t>(i)]});
    }
  }
}

}  // namespace
}  // namespace ripstop
