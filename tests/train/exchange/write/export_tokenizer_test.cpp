#include "train/exchange/write/export_files.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "data/tokenizer/sentencepiece_model.h"
#include "tests/data/small_json_tokenizers.h"
#include "tests/expect_has.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

const Tokenizer& learnt_tokenizer() {
  static const Tokenizer tokenizer = [] {
    int left = 300;
    return Tokenizer(train_tokenizer(
                         [&](std::string& line) {
                           line = fmt::format("the  harbour   opened near bridge {}", left);
                           return left-- > 0;
                         },
                         300),
                     "learnt");
  }();
  return tokenizer;
}

nlohmann::json json_file(const ExportedTokenizer& files, const std::string& name) {
  for (const auto& [file, text] : files.texts)
    if (file == name) return nlohmann::json::parse(text);
  ADD_FAILURE() << "no " << name;
  return {};
}

// The ids of byte-pair merging as `tokenizers` does it: of all neighbours the merge that comes first
// in the list; of several such, the leftmost.
std::vector<int32_t> merge_text(const nlohmann::json& model, const std::string& text) {
  std::map<std::string, size_t> rank;
  for (size_t i = 0; i < model["merges"].size(); ++i) rank.emplace(model["merges"][i].get<std::string>(), i);
  std::vector<std::string> parts;
  for (const char c : text) {
    if ((c & 0xc0) == 0x80)
      parts.back() += c;
    else
      parts.emplace_back(1, c);
  }
  for (;;) {
    size_t best = rank.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = rank.find(parts[i] + " " + parts[i + 1]);
      if (found != rank.end() && found->second < best) best = found->second, at = i;
    }
    if (best == rank.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) {
    if (model["vocab"].contains(part)) {
      ids.push_back(model["vocab"][part]);
      continue;
    }
    for (const char c : part)
      ids.push_back(model["vocab"][fmt::format("<0x{:02X}>", static_cast<unsigned char>(c))]);
  }
  return ids;
}

// The text that the normalizer of tokenizer.json makes.
std::string with_marks(const std::string& text) {
  std::string marked = "\xe2\x96\x81";
  for (const char c : text) marked += c == ' ' ? std::string("\xe2\x96\x81") : std::string(1, c);
  return marked;
}

void expect_same_ids(const Tokenizer& tokenizer) {
  const ExportedTokenizer files = exported_tokenizer(tokenizer, 128);
  EXPECT_EQ(files.difference, "");
  const nlohmann::json json = json_file(files, "tokenizer.json");
  EXPECT_EQ(json["model"]["vocab"].size(), static_cast<size_t>(tokenizer.vocabulary_size()));
  EXPECT_EQ(json["normalizer"]["normalizers"].size(), 2u);
  for (const std::string text : {"the harbour", " leading", "  two", "many          spaces    in here",
                                 "tab\there", "a\n\n b", "</s>", "<s> x", "caf\xc3\xa9 \xf0\x9f\x98\x80",
                                 "                                        x", "near  bridge 299", "\x7f"})
    EXPECT_EQ(merge_text(json["model"], with_marks(text)), tokenizer.encode(text)) << text;
}

TEST(ExportTokenizer, MergesGiveTheSameIds) {
  expect_same_ids(learnt_tokenizer());
}

TEST(ExportTokenizer, MergesOfLlamaGiveTheSameIds) {
  const auto path = shared_file("data/models/llama_tokenizer/tokenizer.model");
  if (!path) GTEST_SKIP() << "../shared is absent";
  expect_same_ids(Tokenizer(*path));
}

TEST(ExportTokenizer, SpecialTokensAreNamed) {
  const ExportedTokenizer files = exported_tokenizer(learnt_tokenizer(), 128);
  const nlohmann::json config = json_file(files, "tokenizer_config.json");
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["model_max_length"], 128);
  EXPECT_EQ(config["split_special_tokens"], true);
  EXPECT_EQ(json_file(files, "special_tokens_map.json"),
            nlohmann::json({{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}));
  const nlohmann::json json = json_file(files, "tokenizer.json");
  ASSERT_EQ(json["added_tokens"].size(), 3u);
  EXPECT_EQ(json["added_tokens"][1]["content"], "<s>");
  EXPECT_EQ(json["added_tokens"][1]["id"], 1);
  EXPECT_EQ(json["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
  EXPECT_EQ(files.texts[0].second, learnt_tokenizer().model());
}

TEST(ExportTokenizer, AJsonWithoutAConfigGetsOne) {
  for (const bool reads : {false, true}) {
    const Tokenizer tokenizer(metaspace_json().dump(), "spaces", {.reads_special_tokens = reads});
    const ExportedTokenizer files = exported_tokenizer(tokenizer, 128);
    EXPECT_EQ(files.texts.front(),
              (std::pair<std::string, std::string>{"tokenizer.json", tokenizer.model()}));
    EXPECT_EQ(files.difference, "");
    const nlohmann::json config = json_file(files, "tokenizer_config.json");
    EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
    EXPECT_EQ(config["bos_token"], "<s>");
    EXPECT_EQ(config["eos_token"], "</s>");
    EXPECT_EQ(config["split_special_tokens"], !reads);
  }
  const nlohmann::json config = json_file(
      exported_tokenizer(Tokenizer(byte_level_json().dump(), "bytes"), 128), "tokenizer_config.json");
  EXPECT_FALSE(config.contains("bos_token"));
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
}

TEST(ExportTokenizer, OtherModelsSayWhatDiffers) {
  const auto path = shared_file("data/models/sentencepiece_test/test_model.model");
  if (!path) GTEST_SKIP() << "../shared is absent";
  const Tokenizer unigram(*path);
  const ExportedTokenizer files = exported_tokenizer(unigram, 128);
  EXPECT_EQ(files.difference, "<s> and </s> in a text are special tokens there, and text here");
  const nlohmann::json json = json_file(files, "tokenizer.json");
  EXPECT_EQ(json["model"]["type"], "Unigram");
  EXPECT_EQ(json["normalizer"]["normalizers"][0]["type"], "Precompiled");
  const SentencePieceModel model = read_sentencepiece_model(unigram.model());
  const std::string base64 = json["normalizer"]["normalizers"][0]["precompiled_charsmap"];
  EXPECT_EQ(base64.size(), (model.character_map.size() + 2) / 3 * 4);
  // A piece of the user's cannot be described: field 3 of the piece becomes 4.
  std::string changed = unigram.model();
  const size_t name = changed.find("\xe2\x96\x81over");
  ASSERT_NE(name, std::string::npos);
  // Append the kind to the message of the piece: its length is the byte before its first field.
  const size_t length = name - 3;
  const auto bytes = static_cast<unsigned char>(changed[length]);
  changed.insert(length + 1 + bytes, "\x18\x04");
  changed[length] = static_cast<char>(bytes + 2);
  const ExportedTokenizer users = exported_tokenizer(Tokenizer(changed, "changed"), 128);
  EXPECT_HAS(users.difference, "it has user-defined pieces");
  EXPECT_EQ(users.texts.size(), 4u);
  EXPECT_EQ(json_file(users, "tokenizer_config.json")["tokenizer_class"], "LlamaTokenizer");
}

}  // namespace
}  // namespace ripstop
