#include "data/chat/encode_conversation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "data/text/unpacked_input.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

EncodedConversation encode(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  Conversation messages;
  for (const std::string& text : texts) messages.push_back(message_of(text));
  return encode_conversation(ChatTemplate(tokenizer), tokenizer, messages);
}

TEST(EncodeConversation, TargetsAreAllBehindTheGenerationPrompt) {
  const Tokenizer tokenizer = ChatDirectory().open("chatml");
  const EncodedConversation encoded = encode(tokenizer, {"sS", "uthe Q", "athe A", "uR", "aB"});
  ASSERT_EQ(encoded.turns.size(), 5U);
  EXPECT_EQ(encoded.why_only_last, "");
  const auto text = [&](int64_t begin, int64_t end) { return shown(tokenizer, encoded.tokens, begin, end); };
  int64_t end = 0;
  for (const EncodedTurn& turn : encoded.turns) {
    EXPECT_EQ(turn.begin, end);
    end = turn.end;
    EXPECT_EQ(turn.target_begin == turn.end, turn.role != Role::kAssistant);
  }
  EXPECT_EQ(end, std::ssize(encoded.tokens));
  EXPECT_EQ(text(encoded.turns[1].text_begin, encoded.turns[1].text_end), "the Q");
  EXPECT_EQ(text(encoded.turns[2].target_begin, encoded.turns[2].end), "the A<|im_end|>\n");
  EXPECT_EQ(text(encoded.turns[4].target_begin, encoded.turns[4].end), "B<|im_end|>\n");
  EXPECT_EQ(text(encoded.turns[4].begin, encoded.turns[4].target_begin), "<|im_start|>assistant\n");
}

TEST(EncodeConversation, ATurnThatDoesNotCountHasNoTargets) {
  const Tokenizer tokenizer = ChatDirectory().open("chatml");
  const EncodedConversation encoded =
      encode_conversation(ChatTemplate(tokenizer), tokenizer,
                          {{Role::kUser, "Q"}, {Role::kAssistant, "A", false}, {Role::kAssistant, "B"}});
  EXPECT_EQ(encoded.turns[1].target_begin, encoded.turns[1].end);
  EXPECT_LT(encoded.turns[2].target_begin, encoded.turns[2].end);
}

// "\n\n" is one token: it begins in the header, so it is no token of the text alone and no target.
TEST(EncodeConversation, ATokenOfHeaderAndTextIsTheHeaders) {
  const Tokenizer tokenizer = ChatDirectory().open("chatml");
  const EncodedConversation encoded = encode(tokenizer, {"u\nQ", "a\nA"});
  const auto text = [&](int64_t begin, int64_t end) { return shown(tokenizer, encoded.tokens, begin, end); };
  EXPECT_EQ(text(encoded.turns[0].text_begin, encoded.turns[0].text_end), "Q");
  EXPECT_EQ(text(encoded.turns[1].target_begin, encoded.turns[1].end), "A<|im_end|>\n");
}

// The template writes the begin token; the tokenizer's own one is not added.
TEST(EncodeConversation, TheBeginTokenComesOnce) {
  Json json = chat_tokenizer_json();
  json["post_processor"] = begin_template("<B>", 277);
  const ChatDirectory directory(json.dump());
  for (const auto& [name, count] : std::map<std::string, int>{{"llama3", 1}, {"chatml", 0}, {"llama2", 2}}) {
    const Tokenizer tokenizer = directory.open(name);
    ASSERT_EQ(tokenizer.begin(), std::vector<int32_t>{277});
    EXPECT_EQ(std::ranges::count(encode(tokenizer, {"uQ", "aA", "uR", "aB"}).tokens, 277), count) << name;
  }
}

TEST(EncodeConversation, OnlyTheLastAnswerHasTargetsIfOthersWereShownInAnotherWay) {
  const Tokenizer tokenizer = ChatDirectory().open("qwen3");
  const EncodedConversation encoded = encode(tokenizer, {"uQ", "aA", "uR", "aB"});
  EXPECT_EQ(encoded.why_only_last, "the chat template qwen3 shows answers in another way once others follow");
  EXPECT_EQ(encoded.turns[1].target_begin, encoded.turns[1].end);
  EXPECT_EQ(shown(tokenizer, encoded.tokens, encoded.turns[3].target_begin, encoded.turns[3].end),
            "<think>\n\n</think>\n\nB<|im_end|>\n");
  EXPECT_EQ(encode(tokenizer, {"uQ", "aA"}).why_only_last, "");
  // A question follows the last answer, which has lost its thoughts: nothing is known.
  const EncodedConversation asks = encode(tokenizer, {"uQ", "aA", "uR"});
  EXPECT_NE(asks.why_only_last, "");
  EXPECT_EQ(asks.turns[1].target_begin, asks.turns[1].end);
}

// Renderings, ids and masks of transformers, from the reference material.
class ConversationGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {};

/// The conversation up to the last message's text, which transformers lets a model go on with.
std::string unfinished(const std::string& text, const Conversation& messages) {
  const std::string& last = messages.back().content;
  return text.substr(0, text.rfind(last) + last.size());
}

std::string mask_of(const EncodedConversation& encoded, size_t tokens) {
  std::string mask(tokens, '0');
  for (const EncodedTurn& turn : encoded.turns)
    for (int64_t i = turn.target_begin; i < turn.end; ++i) mask[static_cast<size_t>(i)] = '1';
  return mask;
}

void check_conversation(const Tokenizer& tokenizer, const Json& given, const Json& row) {
  const ChatTemplate chat(tokenizer);
  Conversation messages;
  for (const Json& message : given["messages"])
    messages.push_back(
        message_of(std::string(message["role"]).substr(0, 1) + std::string(message["content"])));
  if (row.contains("error")) {
    EXPECT_THROW((void)encode_conversation(chat, tokenizer, messages), ConversationError);
    return;
  }
  std::string text = chat.render(messages, given["add_generation_prompt"]).text;
  if (given.value("continue_final_message", false)) text = unfinished(text, messages);
  EXPECT_EQ(text, std::string(row["text"]));
  EXPECT_EQ(tokenizer.encode(text), row["ids"].get<std::vector<int32_t>>());
  const EncodedConversation encoded = encode_conversation(chat, tokenizer, messages);
  EXPECT_EQ(encoded.why_only_last.empty(), !row.contains("no_spans"));
  if (row.contains("assistant_mask")) {
    EXPECT_EQ(mask_of(encoded, row["ids"].size()), std::string(row["assistant_mask"]));
  }
}

TEST_P(ConversationGolden, IdsAndMaskAreThoseOfTransformers) {
  const auto [file, name] = GetParam();
  const auto golden = shared_file("golden/families/chat"), data = shared_file("data/families");
  if (!golden || !data) GTEST_SKIP() << "../shared is absent";
  const Json rows = Json::parse(read_text(*golden / (std::string(file) + ".json"))),
             given = Json::parse(read_text(*golden / "conversations.json"));
  Json config = rows["special_tokens"];
  config["chat_template"] = rows["template_text"];
  std::string bytes;
  UnpackedInput input(*data / std::string(rows["tokenizer"]) / "tokenizer.json.gz");
  for (std::string_view block = input.next_block(); !block.empty(); block = input.next_block())
    bytes += block;
  const ChatDirectory directory(bytes, config);
  EXPECT_EQ(own_chat_template(read_tokenizer_files(directory.path())),
            rows["arguments"].value("enable_thinking", true) ? name : "qwen3");
  const Tokenizer tokenizer = directory.open(name, rows["arguments"].value("date_string", kDefaultChatDate));
  ASSERT_EQ(rows["conversations"].size(), 8);
  for (size_t i = 0; i < given.size(); ++i) {
    SCOPED_TRACE(std::string(given[i]["name"]));
    check_conversation(tokenizer, given[i], rows["conversations"][i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConversationGolden,
                         testing::ValuesIn(std::vector<std::pair<const char*, const char*>>{
                             {"chatml_cj", "chatml-strict"},
                             {"llama2_cj", "llama2-strict"},
                             {"llama3", "llama3"},
                             {"llama3_cj", "llama3-strict"},
                             {"llama3_trl", "llama3"},
                             {"llama3_trl_training", "llama3"},
                             {"llama3.1", "llama3.1"},
                             {"llama3.1_date", "llama3.1"},
                             {"llama3.2", "llama3.1"},
                             {"llama3.3", "llama3.1"},
                             {"mistral_cj", "mistral-strict"},
                             {"mistral_nemo", "mistral-nemo"},
                             {"mistral_v0.2", "mistral"},
                             {"qwen2.5", "qwen2.5"},
                             {"qwen2.5_trl_training", "qwen2.5-training"},
                             {"qwen3", "qwen3"},
                             {"qwen3_no_thinking", "qwen3-no-thinking"},
                             {"qwen3_trl_training", "qwen3-training"},
                             {"smollm2", "smollm2"},
                             {"tinyllama_chat", "zephyr"},
                             {"vicuna_cj", "vicuna"},
                             {"zephyr_cj", "zephyr-strict"}}),
                         [](const auto& test) {
                           std::string name = test.param.first;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace ripstop
