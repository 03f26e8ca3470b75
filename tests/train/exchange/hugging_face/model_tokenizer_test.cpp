#include "train/exchange/hugging_face/model_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/small_tokenizer.h"
#include "tests/expect_error.h"
#include "tests/test_files.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/exchange/write/export_files.h"

namespace ripstop {
namespace {

const Tokenizer& own_tokenizer() {
  static const Tokenizer tokenizer(small_model(), "small");
  return tokenizer;
}

class ModelTokenizer : public testing::Test {
 protected:
  void SetUp() override { model_.write_config(); }
  std::string file(const std::string& name) const { return (model_.path() / name).string(); }
  /// A tokenizer.json for own_tokenizer().
  static nlohmann::json description() {
    for (const auto& [name, text] : exported_tokenizer(own_tokenizer(), 128).texts)
      if (name == "tokenizer.json") return nlohmann::json::parse(text);
    throw std::runtime_error("no tokenizer.json");
  }
  std::string compare(int64_t ids = 0) const { return compare_with(own_tokenizer(), ids, false); }
  std::string compare_with(const Tokenizer& tokenizer, int64_t ids, bool may_go_on) const {
    Io io;
    return compare_tokenizers({.model = model_.path(),
                               .model_sha256 = find_tokenizer_sha256(io, model_.path()),
                               .model_ids = ids,
                               .user = "the data set d",
                               .may_go_on = may_go_on},
                              tokenizer);
  }
  void expect_refused(const std::string& what, const std::string& hint, int64_t ids = 0) const {
    expect_error([&] { (void)compare(ids); }, ExitCode::kInputData, what, hint);
  }

  PretrainedDirectory model_;
};

TEST_F(ModelTokenizer, TheSameFileIsTheSame) {
  write_bytes(file("tokenizer.model"), small_model());
  EXPECT_EQ(compare(), "");
  EXPECT_EQ(compare(own_tokenizer().vocabulary_size()), "");
  // A data set of the model's own tokenizer would get the same line.
  expect_refused("400 pieces, the model 399 ids", "resize_token_embeddings(400) of transformers", 399);
}

TEST_F(ModelTokenizer, WithoutATokenizerItIsNotOffered) {
  expect_refused("400 pieces, the model 399 ids", "prepare --tokenizer FILE makes a data set for it", 399);
}

TEST_F(ModelTokenizer, AnotherFileIsRefusedWithWhatToType) {
  int left = 300;
  write_bytes(file("tokenizer.model"), train_tokenizer(
                                           [&](std::string& line) {
                                             line = "another text " + std::to_string(left);
                                             return left-- > 0;
                                           },
                                           300));
  expect_refused("the data set d has another tokenizer (SHA-256 ",
                 "ripstop prepare --tokenizer " + model_.path().string() + " makes a data set for it");
}

TEST_F(ModelTokenizer, WithoutAnyFileANoteSaysSo) {
  EXPECT_HAS(compare(), "and no tokenizer.json: whether the data set d has its tokenizer was not checked");
}

TEST_F(ModelTokenizer, PiecesOfTokenizerJsonAreCompared) {
  nlohmann::json json = description();
  const auto write = [&] { write_bytes(file("tokenizer.json"), json.dump()); };
  // Names of special tokens differ between files, and tokens may have been added.
  json["model"]["vocab"].erase("<s>");
  json["model"]["vocab"]["<|begin|>"] = 1;
  json["added_tokens"].push_back({{"id", 400}, {"content", "<pad>"}});
  write();
  EXPECT_EQ(compare(), "");
  const std::string piece = own_tokenizer().piece(300).name;
  json["model"]["vocab"][piece] = 301;
  write();
  expect_refused("the data set d has another tokenizer than " + model_.path().string() + ": the piece '" +
                     piece + "' has id 300 here and 301 in its tokenizer.json",
                 "ripstop prepare --tokenizer ");
  json["model"]["vocab"].erase(piece);
  write();
  expect_refused("id 300 here, is not in its tokenizer.json", "ripstop prepare --tokenizer ");
}

TEST_F(ModelTokenizer, PiecesOfAUnigramModelAreAList) {
  nlohmann::json vocabulary = nlohmann::json::array();
  for (int32_t id = 0; id < own_tokenizer().vocabulary_size(); ++id)
    vocabulary.push_back({own_tokenizer().piece(id).name, -1.0 * id});
  const auto write = [&] {
    write_bytes(file("tokenizer.json"),
                nlohmann::json{{"model", {{"type", "Unigram"}, {"vocab", vocabulary}}}}.dump());
  };
  write();
  EXPECT_EQ(compare(), "");
  std::swap(vocabulary[310], vocabulary[311]);
  write();
  expect_refused("has id 310 here and 311 in its tokenizer.json", "");
}

TEST_F(ModelTokenizer, ADamagedTokenizerJsonIsRefused) {
  for (const char* text : {"", "{", "{}", R"({"model": {"vocab": {"a": "b"}}})",
                           R"({"model": {"vocab": [1]}})", "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]"}) {
    write_bytes(file("tokenizer.json"), text);
    expect_refused("tokenizer.json", "");
  }
}

nlohmann::json three_pieces() {
  return {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"r", 1}, {"ar", 2}}}, {"merges", {"a r"}}}}};
}

TEST_F(ModelTokenizer, MorePiecesMustDivideTextsAsBefore) {
  nlohmann::json json = three_pieces();
  write_bytes(file("tokenizer.json"), json.dump());
  json["model"]["vocab"]["~"] = 3;  // not in the texts that are compared
  const auto compare_json = [&] { return compare_with(Tokenizer(json.dump(), "more"), 3, true); };
  EXPECT_HAS(compare_json(), "and 1 more piece");
  json["model"]["merges"] = nlohmann::json::array();
  EXPECT_HAS(error_of([&] { (void)compare_json(); }).what(), "its ids mean other texts");
}

TEST_F(ModelTokenizer, OfATokenizerJsonThatCannotBeReadOnlyPiecesAreCompared) {
  nlohmann::json json = three_pieces();
  const Tokenizer ours(json.dump(), "ours");
  json["normalizer"] = {{"type", "StripAccents"}};
  write_bytes(file("tokenizer.json"), json.dump());
  EXPECT_HAS(compare_with(ours, 3, false), "only its pieces were compared");
  json["model"]["vocab"]["ar"] = 5;
  write_bytes(file("tokenizer.json"), json.dump());
  EXPECT_HAS(error_of([&] { (void)compare_with(ours, 3, false); }).what(), "in its tokenizer.json");
}

// A real model whose tokenizer exists as tokenizer.json alone.
TEST_F(ModelTokenizer, ARealTokenizerJsonIsToldFromOurs) {
  const auto model = shared_file("data/models/TinyStories-656K");
  if (!model) GTEST_SKIP() << "../shared is absent";
  Io io;
  EXPECT_NE(find_tokenizer_sha256(io, *model), own_tokenizer().sha256());
  expect_error(
      [&] { (void)compare_tokenizers({.model = *model, .model_sha256 = "", .user = "d"}, own_tokenizer()); },
      ExitCode::kInputData, "d has another tokenizer than ");
}

}  // namespace
}  // namespace ripstop
