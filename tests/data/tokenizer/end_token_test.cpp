// The token that ends an example, by the files of a tokenizer.json and by --eos-token.
#include "data/tokenizer/end_token.h"

#include <gtest/gtest.h>

#include "data/tokenizer/tokenizer.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_json_tokenizers.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

class EndTokenTest : public testing::Test {
 protected:
  void SetUp() override { write("tokenizer.json", byte_level_json()); }
  void write(const char* name, const Json& json) const { write_bytes(scratch_ / name, json.dump()); }
  Tokenizer open(const TokenizerChoice& choice = {}) const { return Tokenizer(scratch_.path(), choice); }
  /// Expects that eos() names --eos-token after `what`.
  void expect_unknown(const std::string& what) const {
    const Tokenizer tokenizer = open();  // its ids are good for all that does not end an example
    EXPECT_FALSE(tokenizer.has_eos());
    expect_error([&] { (void)tokenizer.eos(); }, ExitCode::kInputData, what, "--eos-token");
  }
  ScratchDirectory scratch_;
};

// Each file is stronger than those that stand here before it.
TEST_F(EndTokenTest, TheOrderOfTheFiles) {
  const Tokenizer bare = open();
  EXPECT_EQ(bare.eos(), 274);  // the only added token of a usual name
  ASSERT_EQ(bare.notes().size(), 1U);
  EXPECT_HAS(bare.notes().front(), "<|endoftext|> is taken");
  write("config.json", {{"eos_token_id", 275}});
  EXPECT_EQ(open().eos(), 275);
  EXPECT_TRUE(open().notes().empty());
  write("special_tokens_map.json", {{"eos_token", {{"content", "<|endoftext|>"}}}});
  EXPECT_EQ(open().eos(), 274);
  write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  EXPECT_EQ(open().eos(), 275);
  EXPECT_EQ(open({.eos_token = "<think>"}).eos(), 276);
  write("ripstop_tokenizer.json", {{"eos_token", "<think>"}});
  EXPECT_EQ(open().eos(), 276);
  EXPECT_EQ(open({.eos_token = "<|endoftext|>"}).eos(), 274);
}

TEST_F(EndTokenTest, NullAndAbsentSayNothing) {
  write("tokenizer_config.json", {{"eos_token", nullptr}, {"chat_template", "{{ x }}"}});
  write("special_tokens_map.json", {{"pad_token", "x"}});
  write("config.json", {{"eos_token_id", Json::array({275})}});
  EXPECT_EQ(open().eos(), 275);
}

TEST_F(EndTokenTest, AnUnusualNameIsATokenOfTheVocabulary) {
  EXPECT_EQ(open({.eos_token = byte_letter('\n')}).eos(), 10);
}

TEST_F(EndTokenTest, WhatIsNotKnownNamesTheOption) {
  write("config.json", {{"eos_token_id", {274, 275}}});
  expect_unknown("has 2 ids");
  write("config.json", {{"eos_token_id", 277}});
  expect_unknown("eos_token_id of config.json is 277, which is no token");
  write("config.json", {{"eos_token_id", -1}});
  expect_unknown("is -1");
  write("special_tokens_map.json", {{"eos_token", "<eos>"}});
  expect_unknown("eos_token of special_tokens_map.json is '<eos>', which is no token");
  std::filesystem::remove(scratch_ / "special_tokens_map.json");
  std::filesystem::remove(scratch_ / "config.json");
  Json two = byte_level_json();
  two["added_tokens"].push_back(added_token(277, "</s>"));
  write("tokenizer.json", two);
  expect_unknown("2 added tokens have a usual name");
  two["added_tokens"] = Json::array({added_token(274, "<pad>")});
  write("tokenizer.json", two);
  expect_unknown("0 added tokens have a usual name");
}

TEST_F(EndTokenTest, ANameThatIsNoTokenIsRefused) {
  for (const bool json : {true, false}) {
    if (!json) write_bytes(scratch_ / "tokenizer.model", small_model());
    if (!json) std::filesystem::remove(scratch_ / "tokenizer.json");
    expect_error([&] { open({.eos_token = "<eos>"}); }, ExitCode::kInputData, "has no token '<eos>'");
  }
  EXPECT_EQ(open({.eos_token = "<s>"}).eos(), 1);  // of SentencePiece
}

TEST_F(EndTokenTest, DamagedFilesAreRefused) {
  for (const char* name :
       {"config.json", "special_tokens_map.json", "tokenizer_config.json", "ripstop_tokenizer.json"})
    for (const char* text : {"{", "[]", R"({"eos_token": 7, "eos_token_id": "x"})"}) {
      write_bytes(scratch_ / name, text);
      EXPECT_THROW(open(), Error) << name << ' ' << text;
      std::filesystem::remove(scratch_ / name);
    }
}

}  // namespace
}  // namespace ripstop
