#include "data/tokenizer/special_names.h"

#include <gtest/gtest.h>

#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"

namespace ripstop {
namespace {

TEST(SpecialNames, AreThoseOfPiecesAndOfTheModelsAddedTokens) {
  ScratchDirectory scratch;
  write_bytes(scratch / "tokenizer.model", small_model());
  const SpecialNames own{Tokenizer(scratch.path())};
  for (const char* name : {"<s>", "</s>", "<unk>"}) {
    EXPECT_EQ(own.find("a <b " + std::string(name) + " c"), name);
    EXPECT_EQ(own.find(name), name);
  }
  for (const char* text : {"", "a < b", "<", "</", "< /s>", "<S>", "<0x0A>", "<|im_end|>", "[PAD]"})
    EXPECT_EQ(own.find(text), "") << text;

  write_bytes(scratch / "added_tokens.json", R"({"<|im_end|>": 400, "word": 401, "##": 402})");
  write_bytes(
      scratch / "special_tokens_map.json",
      R"({"pad_token": "[PAD]", "eos_token": {"content": "<eot>"}, "additional_special_tokens": ["<a>", {"content": "<b>"}]})");
  write_bytes(scratch / "tokenizer_config.json",
              R"({"added_tokens_decoder": {"403": {"content": "<|x|>"}, "404": 5}})");
  const SpecialNames all{Tokenizer(scratch.path())};
  for (const char* name : {"</s>", "<|im_end|>", "[PAD]", "<eot>", "<a>", "<b>", "<|x|>"})
    EXPECT_EQ(all.find("text" + std::string(name) + "."), name);
  EXPECT_EQ(all.find("a word ## b"), "");
  const std::string deep = "{\"added_tokens_decoder\": " + deep_list() + "}";
  for (const char* file : {"added_tokens.json", "special_tokens_map.json", "tokenizer_config.json"})
    for (const char* bytes : {"{", "[1]", "5", R"({"added_tokens_decoder": 1})", deep.c_str()}) {
      write_bytes(scratch / file, bytes);
      EXPECT_EQ(SpecialNames(Tokenizer(scratch.path())).find("</s>"), "</s>");
    }
  EXPECT_EQ(SpecialNames(Tokenizer(small_model(), "the trained tokenizer")).find("<|x|>"), "");
}

}  // namespace
}  // namespace ripstop
