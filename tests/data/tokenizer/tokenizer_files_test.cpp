// The file of a directory that is the tokenizer, and the files that travel with it.
#include "data/tokenizer/tokenizer_files.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/dataset/prompt_template.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_json_tokenizers.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

class TokenizerFilesTest : public testing::Test {
 protected:
  void write(const char* name, const nlohmann::json& json) const {
    write_bytes(scratch_ / name, json.dump());
  }
  std::vector<std::string> carried() const {
    std::vector<std::string> names;
    const Tokenizer tokenizer(scratch_.path());
    for (const auto& [name, bytes] : tokenizer.files().carried) names.push_back(name);
    return names;
  }
  ScratchDirectory scratch_;
};

TEST_F(TokenizerFilesTest, OfBothTheJsonIsRead) {
  EXPECT_FALSE(has_tokenizer(scratch_.path()));
  write_bytes(scratch_ / "tokenizer.model", small_model());
  EXPECT_TRUE(has_tokenizer(scratch_.path()));
  EXPECT_TRUE(Tokenizer(scratch_.path()).is_sentencepiece());
  EXPECT_EQ(tokenizer_file_name(scratch_.path()), "tokenizer.model");
  write("tokenizer.json", metaspace_json());
  EXPECT_EQ(tokenizer_file_name(scratch_.path()), "tokenizer.json");
  const Tokenizer json(scratch_.path());
  EXPECT_FALSE(json.is_sentencepiece());
  EXPECT_EQ(json.name(), (scratch_ / "tokenizer.json").string());
  EXPECT_EQ(json.begin(), Ids{1});
  EXPECT_EQ(json.eos(), 2);
  EXPECT_TRUE(Tokenizer(scratch_ / "tokenizer.model").is_sentencepiece());
  // An export of ripstop says that its .model is read.
  write("ripstop_tokenizer.json", {{"file", "tokenizer.model"}});
  EXPECT_TRUE(Tokenizer(scratch_.path()).is_sentencepiece());
  std::filesystem::remove(scratch_ / "tokenizer.model");
  EXPECT_FALSE(Tokenizer(scratch_.path()).is_sentencepiece());
  write("ripstop_tokenizer.json", {{"file", "../tokenizer.model"}});
  EXPECT_THROW(tokenizer_file_name(scratch_.path()), Error);
}

TEST_F(TokenizerFilesTest, AJsonThatIsRefusedGivesWayWithANote) {
  write("tokenizer.json", {{"model", {{"type", "Unigram"}}}});
  EXPECT_THROW(Tokenizer(scratch_.path()), Error);
  write_bytes(scratch_ / "tokenizer.model", small_model());
  const Tokenizer tokenizer(scratch_.path());
  EXPECT_TRUE(tokenizer.is_sentencepiece());
  ASSERT_EQ(tokenizer.notes().size(), 1U);
  EXPECT_HAS(tokenizer.notes().front(),
             "tokenizer.model is read, because " + (scratch_ / "tokenizer.json").string());
  EXPECT_THROW(Tokenizer(scratch_ / "tokenizer.json"), Error);  // the file was named
  // LLaMA 3's tokenizer.model has another format: the message says why the JSON is refused.
  write_bytes(scratch_ / "tokenizer.model", "IQ== 0\nIg== 1\n");
  expect_error([&] { Tokenizer both(scratch_.path()); }, ExitCode::kInputData, "tokenizer.json: ");
}

TEST_F(TokenizerFilesTest, WhatLiesBesideTheJsonIsCarried) {
  write("tokenizer.json", byte_level_json());
  write("config.json", {{"eos_token_id", 275}});
  write_bytes(scratch_ / "merges.txt", "");
  EXPECT_EQ(carried(), (std::vector<std::string>{"tokenizer.json", "ripstop_tokenizer.json"}));
  write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  write("special_tokens_map.json", {{"pad_token", "x"}});
  write_bytes(scratch_ / "chat_template.jinja", "{{ x }}\r\n");
  const std::vector<std::string> all = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "chat_template.jinja", "ripstop_tokenizer.json"};
  EXPECT_EQ(carried(), all);
  for (const std::string& name : all) EXPECT_TRUE(is_tokenizer_file(name));
  const Tokenizer tokenizer(scratch_.path(), {.reads_special_tokens = true});
  EXPECT_EQ(*tokenizer.files().find("chat_template.jinja"), "{{ x }}\r\n");
  // A copy of the carried files alone is the same tokenizer, with the same end and choice.
  const ScratchDirectory copy;
  for (const auto& [name, bytes] : tokenizer.files().carried) write_bytes(copy / name, bytes);
  const Tokenizer again(copy.path());
  EXPECT_EQ(again.sha256(), tokenizer.sha256());
  EXPECT_EQ(again.eos(), 275);
  EXPECT_TRUE(again.reads_special_tokens());
  EXPECT_EQ(again.files().carried, tokenizer.files().carried);
}

TEST_F(TokenizerFilesTest, OfASentencePieceModelNothingElseIs) {
  write_bytes(scratch_ / "tokenizer.model", small_model());
  write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  EXPECT_EQ(carried(), std::vector<std::string>{"tokenizer.model"});
  EXPECT_THROW(Tokenizer(scratch_.path(), {.reads_special_tokens = true}), Error);
}

// A file of another name is read alone: what lies beside it may be of another tokenizer.
TEST_F(TokenizerFilesTest, AFileOfAnyNameIsJsonByItsContent) {
  write("mine.json", byte_level_json());
  write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  const Tokenizer tokenizer(scratch_ / "mine.json");
  EXPECT_FALSE(tokenizer.is_sentencepiece());
  EXPECT_EQ(tokenizer.eos(), 274);
}

TEST_F(TokenizerFilesTest, AddBosTokenIsToldAndDropped) {
  write("tokenizer.json", byte_level_json());
  write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}, {"add_bos_token", true}});
  const Tokenizer none(scratch_.path());
  EXPECT_TRUE(none.begin().empty());
  ASSERT_EQ(none.notes().size(), 1U);
  EXPECT_HAS(none.notes().front(), "begins with no token");
  write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}, {"add_bos_token", false}});
  EXPECT_TRUE(Tokenizer(scratch_.path()).notes().empty());
}

// The ids are those of tokenizers 0.23.
TEST_F(TokenizerFilesTest, BothKindsOfJsonGiveIdsAndTexts) {
  const Tokenizer bytes(byte_level_json().dump(), "bytes");
  EXPECT_EQ(bytes.vocabulary_size(), 277);
  EXPECT_EQ(bytes.encode("The harbour opened.\n\nTL;DR:"),
            (Ids{84,  104, 101, 32,  104, 97,  114, 98,  262, 114, 32,
                 111, 112, 101, 110, 101, 100, 257, 267, 59,  268, 58}));
  EXPECT_EQ(bytes.encode_continuation("the council said", {7}),
            (Ids{7, 260, 32, 99, 262, 110, 99, 105, 108, 266, 97, 105, 100}));
  const Tokenizer spaces(metaspace_json().dump(), "spaces");
  EXPECT_EQ(spaces.encode_continuation("the", {1}), (Ids{1, 295}));
  for (const Tokenizer* tokenizer : {&bytes, &spaces}) {
    const std::string text = "the caf\u00e9 \U0001f600 on";
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), text);
    std::string joined;
    for (const int32_t id : ids) joined += tokenizer->piece(id).text;
    EXPECT_EQ(joined.substr(joined.find('t')), text);
    // Special tokens have no text, and bytes that end inside a letter are U+FFFD.
    Ids cut = tokenizer->encode("the \u00e9");
    cut.back() = tokenizer->eos();
    EXPECT_EQ(tokenizer->decode(cut), "the \ufffd");
    EXPECT_TRUE(tokenizer->piece(tokenizer->eos()).is_special);
    EXPECT_EQ(tokenizer->piece(tokenizer->eos()).text, "");
    EXPECT_THROW(tokenizer->decode({static_cast<int32_t>(tokenizer->vocabulary_size())}), Error);
  }
}

TEST_F(TokenizerFilesTest, SpecialTokensInATextAreTextUnlessChosen) {
  const std::string text = "a<|im_end|><think>";
  const Tokenizer plain(byte_level_json().dump(), "x"),
      read(byte_level_json().dump(), "x", {.reads_special_tokens = true});
  const Ids ids = plain.encode(text);
  EXPECT_EQ(std::ranges::count(ids, 275), 0);
  EXPECT_EQ(ids.back(), 276);  // not special: a token always
  EXPECT_EQ(read.encode(text), (Ids{97, 275, 276}));
  EXPECT_EQ(SpecialNames(plain).find(text), "<|im_end|>");
  EXPECT_EQ(SpecialNames(plain).find("<think>"), "");
}

// ".\n\n" is one token, which belongs to the separator.
TEST_F(TokenizerFilesTest, ATokenOfDocumentAndSeparatorIsTheSeparators) {
  const Tokenizer tokenizer(byte_level_json().dump(), "x");
  const PromptTemplate prompt(tokenizer, std::string(kDefaultTemplate));
  const TokenExample joined = prompt.encode_pair("on.", "the sun");
  EXPECT_EQ(joined.tokens, (Ids{111, 110, 257, 267, 59, 268, 58, 260, 266, 117, 110, 274}));
  EXPECT_EQ(joined.spans.at(0).cut_end, 2);
  EXPECT_EQ(joined.spans.at(0).target_begin, 7);
  const TokenExample apart = prompt.encode_pair("on", "the sun");
  EXPECT_EQ(apart.tokens[2], 256);
  EXPECT_EQ(apart.spans.at(0).cut_end, 2);
  // Nothing stands before the separator: there is no BOS.
  const EncodedPrompt dot = prompt.encode(".");
  EXPECT_EQ(dot.tokens, (Ids{257, 267, 59, 268, 58}));
  EXPECT_EQ(dot.separator_begin, 0);
  EXPECT_EQ(dot.begin_tokens, 0);
  const TokenExample text = prompt.encode_text("on");
  EXPECT_EQ(text.tokens, (Ids{111, 110, 274}));
  EXPECT_EQ(text.spans.at(0).target_begin, 1);
}

}  // namespace
}  // namespace ripstop
