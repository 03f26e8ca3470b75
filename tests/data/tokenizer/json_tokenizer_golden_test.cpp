// Ids and texts of public models' tokenizer.json beside those of `tokenizers`, from the reference material.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "data/files/hash.h"
#include "data/text/unpacked_input.h"
#include "data/tokenizer/json_tokenizer.h"
#include "model/core/error.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;
using Special = JsonTokenizer::Special;

std::string unpacked(const std::filesystem::path& path) {
  UnpackedInput input(path);
  std::string text;
  for (std::string_view block = input.next_block(); !block.empty(); block = input.next_block()) text += block;
  return text;
}

std::vector<int64_t> golden_ids(const JsonTokenizer& tokenizer, const std::string& text, Special special) {
  std::vector<int64_t> ids;
  for (const SpannedToken& token : tokenizer.encode(text, special)) ids.push_back(token.id);
  return ids;
}

std::string sha256_of(const std::vector<int64_t>& ids) {
  return sha256_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
}

class JsonTokenizerGolden : public testing::Test {
 protected:
  void SetUp() override {
    const auto golden = shared_file("golden/families"), data = shared_file("data/families");
    if (!golden || !data) GTEST_SKIP() << "../shared is absent";
    for (const Json& each : Json::parse(read_text(*golden / "texts.json")))
      texts_[each["name"]] = each["text"];
    for (const auto& entry : std::filesystem::directory_iterator(*golden / "tokenizers")) {
      goldens_.push_back(Json::parse(unpacked(entry.path())));
      const std::string name = goldens_.back()["tokenizer"];
      SCOPED_TRACE(name);
      const JsonTokenizer tokenizer(unpacked(*data / name), name);
      EXPECT_GE(tokenizer.vocabulary_size(), goldens_.back()["vocabulary_with_added"].get<int64_t>());
      check_texts(tokenizer, goldens_.back());
      check_examples(tokenizer, goldens_.back());
    }
    EXPECT_GE(goldens_.size(), 20);
  }

  static std::vector<int64_t> with_affixes(const JsonTokenizer& tokenizer, const std::vector<int64_t>& ids) {
    std::vector<int64_t> all(tokenizer.prefix().begin(), tokenizer.prefix().end());
    all.insert(all.end(), ids.begin(), ids.end());
    all.insert(all.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
    return all;
  }

  void check_texts(const JsonTokenizer& tokenizer, const Json& golden) const {
    for (const Json& row : golden["texts"]) {
      const std::string name = row["name"];
      SCOPED_TRACE(name);
      const std::vector<int64_t> ids = row["ids"],
                                 found = golden_ids(tokenizer, texts_.at(name), Special::kTokens);
      EXPECT_EQ(found, ids);
      const std::vector<int64_t> special = row.value("ids_special", ids);
      EXPECT_EQ(with_affixes(tokenizer, found), special);
      const auto decoded = [&](const std::vector<int64_t>& of, bool skip) -> Json {
        return tokenizer.decode(std::vector<int32_t>(of.begin(), of.end()), skip);
      };
      EXPECT_EQ(decoded(ids, false), row["decoded"]);
      EXPECT_EQ(decoded(ids, true), row.value("decoded_skip_special", row["decoded"]));
      if (row.contains("ids_special")) {
        EXPECT_EQ(decoded(special, false), row["decoded_special"]);
        EXPECT_EQ(decoded(special, true), row["decoded_special_skip_special"]);
      }
    }
  }

  void check_examples(const JsonTokenizer& tokenizer, const Json& golden) const {
    const auto file = shared_file("data/xsum/dev/train.jsonl.gz");
    ASSERT_TRUE(file);
    if (examples_.empty()) {
      std::istringstream lines(unpacked(*file));
      for (std::string line; std::getline(lines, line);) {
        const Json example = Json::parse(line);
        examples_[example["id"]] = example;
      }
    }
    for (const Json& row : golden["xsum"]) {
      SCOPED_TRACE(row["id"]);
      const std::string text = examples_.at(row["id"]).at(row["field"].get<std::string>());
      const std::vector<int64_t> ids = golden_ids(tokenizer, text, Special::kTokens);
      EXPECT_EQ(sha256_of(ids), std::string(row["sha256_int64_le"]));
      if (row.contains("sha256_int64_le_special")) {
        EXPECT_EQ(sha256_of(with_affixes(tokenizer, ids)), std::string(row["sha256_int64_le_special"]));
      }
    }
  }

  std::map<std::string, std::string> texts_;
  mutable std::map<std::string, Json> examples_;
  std::vector<Json> goldens_;
};

TEST(BadTokenizerJsonGolden, FilesThatTokenizersRefusesAreRefused) {
  const auto refused = shared_file("data/families/refused");
  if (!refused) GTEST_SKIP() << "../shared is absent";
  for (const auto& entry : std::filesystem::directory_iterator(*refused)) {
    const std::string json = unpacked(entry.path());
    EXPECT_THROW(JsonTokenizer(json, entry.path().filename()), Error) << entry.path();
  }
}

TEST_F(JsonTokenizerGolden, EveryFamilyGivesTheIdsAndTextsOfTokenizers) {}

}  // namespace
}  // namespace ripstop
