// prepare --chat-template: documents with summaries as turns of a conversation.
#include <gtest/gtest.h>

#include "data/dataset/dataset_directory.h"
#include "data/dataset/prompt_template.h"
#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/data/prepare_fixture.h"
#include "tests/expect_has.h"

namespace ripstop {
namespace {

class PrepareChatTest : public PrepareTest {
 protected:
  PrepareChatTest() {
    options_.tokenizer = directory_.path();
    options_.chat_template = "chatml";
  }
  ChatDirectory directory_;
};

TEST_F(PrepareChatTest, TheDataSetSaysHowItsPromptsAreMade) {
  options_.chat_date = "1 Jan 2025";
  prepare(options_);
  const TokenDataset dataset(scratch_ / "out/validation.h5");
  const Tokenizer tokenizer(scratch_ / "out");
  EXPECT_EQ(dataset.header().prompt_template, kDefaultChatPrompt);
  EXPECT_EQ(dataset.header().chat_template, "chatml");
  EXPECT_EQ(dataset.header().chat_date, "1 Jan 2025");
  EXPECT_EQ(dataset.header().end_token, 275) << "<|im_end|>, though tokenizer_config.json names <E>";
  EXPECT_TRUE(dataset.header().reads_special_tokens);
  require_dataset_tokenizer(dataset, tokenizer);
  // The tokenizer beside the data set makes the same tokens, as `summarize` needs them.
  const PromptTemplate prompt(tokenizer, dataset.header().prompt_template);
  const ExampleText text = checked_text(dataset, tokenizer, 0, 1).front();
  EXPECT_EQ(tokens_of(dataset, 0), prompt.encode_pair(text.document, text.summary).tokens);
  EXPECT_EQ(dataset.spans(0)[0], prompt.encode_pair(text.document, text.summary).spans[0]);
  EXPECT_EQ(tokens_of(dataset, 0)[static_cast<size_t>(dataset.spans(0)[0].target_end) - 2], 275);
  const std::string json = read_bytes(scratch_ / "out/prepare.json");
  EXPECT_HAS(json, R"("chat_template": "chatml")");
  EXPECT_HAS(json, R"("chat_date": "1 Jan 2025")");
}

TEST_F(PrepareChatTest, AnotherTemplateOrDateIsAnotherDataSet) {
  const auto prepared = [&](const char* name, const char* date) {
    options_.chat_template = name, options_.chat_date = date;
    options_.output = scratch_ / (std::string(name) + date);
    prepare(options_);
    return TokenDataset(options_.output / "train.h5").content_hash();
  };
  const std::string first = prepared("llama2", "");
  EXPECT_NE(prepared("llama2", "1 Jan 2025"), first);
  // Both templates give these examples the same tokens: the name alone differs.
  EXPECT_NE(prepared("llama2-strict", ""), first);
  const TokenDataset dataset(scratch_ / "llama2/train.h5");
  EXPECT_THROW(require_dataset_tokenizer(dataset, Tokenizer(scratch_ / "llama2-strict")), Error);
}

TEST_F(PrepareChatTest, WithoutTheOptionNoTemplateIsUsed) {
  prepare(options_);
  options_.tokenizer = scratch_ / "out";  // its files name a template
  options_.output = scratch_ / "plain";
  options_.chat_template = "";
  prepare(options_);
  const TokenDataset dataset(scratch_ / "plain/train.h5");
  EXPECT_EQ(dataset.header().chat_template, "");
  EXPECT_EQ(dataset.header().prompt_template, kDefaultTemplate);
  EXPECT_EQ(Tokenizer(scratch_ / "plain").files().choice.chat_template.value_or(""), "");
}

// <|eot_id|> is a token of this tokenizer, <end_of_turn> of another family's.
TEST_F(PrepareChatTest, NamesAreReadAsTokensOnlyIfTheyAreTokens) {
  write_bytes(scratch_ / "c/train.jsonl", R"({"document": "one <end_of_turn>", "summary": "s <|eot_id|>"})");
  options_.source.inputs = {scratch_ / "c"};
  std::string notes;
  options_.note = [&](const std::string& note) { notes += note + "\n"; };
  prepare(options_);
  EXPECT_HAS(notes, "which is read as this token if the tokenizer has it, else as text, and learnt");
}

TEST_F(PrepareChatTest, WhatCannotWorkIsRefused) {
  const PrepareOptions good = options_;
  options_.chat_template = "gemma";
  expect_refused(ExitCode::kUsage, "no chat template is named 'gemma'");
  options_.chat_template = "auto";
  expect_refused(ExitCode::kInputData, "has a chat template");
  options_ = good;
  options_.chat_template = "", options_.chat_date = "1 Jan 2025";
  expect_refused(ExitCode::kUsage, "--chat-date is for --chat-template");
  options_ = good;
  options_.tokenizer = scratch_ / "tokenizer.model";
  expect_refused(ExitCode::kUsage, "reads special tokens in a text as text alone");
  options_.tokenizer.clear(), options_.vocab_size = 500;
  expect_refused(ExitCode::kUsage, "--chat-template is for a tokenizer that is given");
  options_ = good;
  options_.source.kind = SourceKind::kText;
  write_bytes(scratch_ / "t/train.txt", "the sun\n");
  options_.source.inputs = {scratch_ / "t"};
  expect_refused(ExitCode::kUsage, "the input is running text");
}

}  // namespace
}  // namespace ripstop
