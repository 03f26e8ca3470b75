// Long texts are encoded in parts: with the ids that SentencePiece gives to the whole text, or not at all.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <random>
#include <unordered_map>

#include "data/dataset/prompt_template.h"
#include "data/files/whole_file.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

// `bytes` of words, runs of spaces, line ends, letters of several bytes (some end in the byte 0x81, as the
// mark of a space does) and the mark itself.
std::string random_text(size_t bytes, uint32_t seed) {
  const std::vector<std::string> parts = {"the",  "harbour", "police", "a",   "b",   "é",  "Á",
                                          "東京", "\n",      "\t",     "12",  ".",   "“",  "\xe2\x96\x81",
                                          "ﬁ",    "½",       "🎈",      "x y", "<s>", "zzz"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += parts[random() % parts.size()];
    text.append(random() % 8 == 0 ? random() % 5 : random() % 2, ' ');
  }
  return text;
}

std::string train(std::unordered_map<std::string, std::string> arguments) {
  ScratchDirectory scratch;
  std::string lines;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::string line = random_text(150, seed);
    std::replace(line.begin(), line.end(), '\n', ' ');
    lines += line + '\n';
  }
  write_bytes(scratch / "lines.txt", lines);
  arguments.insert({{"input", (scratch / "lines.txt").string()},
                    {"model_type", "bpe"},
                    {"vocab_size", "400"},
                    {"hard_vocab_limit", "false"},
                    {"normalization_rule_name", "identity"},
                    {"remove_extra_whitespaces", "false"},
                    {"byte_fallback", "true"},
                    {"minloglevel", "3"}});
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, nullptr, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

// Expects the ids of SentencePiece for texts that are longer than a part.
void expect_ids_of_whole_texts(const std::string& model, const std::string& name) {
  sentencepiece::SentencePieceProcessor whole;
  ASSERT_TRUE(whole.LoadFromSerializedProto(model).ok());
  const Tokenizer tokenizer(model, name);
  const std::string word(70'000, 'q');
  for (const std::string& text :
       {random_text(140'000, 1), random_text(90'000, 2) + " ", word + "  " + word}) {
    Ids expected;
    ASSERT_TRUE(whole.Encode(text, &expected).ok());
    ASSERT_EQ(tokenizer.encode(text), expected) << name;
    const auto spans = tokenizer.encode_with_spans(text);
    ASSERT_EQ(spans.size(), expected.size());
    const auto proto = whole.EncodeAsImmutableProto(text);
    for (size_t i = 0; i < spans.size(); ++i) {
      ASSERT_EQ(spans[i].id, expected[i]);
      ASSERT_EQ(spans[i].end_byte, static_cast<int64_t>(proto.pieces(static_cast<int>(i)).end()))
          << name << i;
    }
    EXPECT_EQ(tokenizer.tokens_before(text, spans[spans.size() / 2].end_byte - 1),
              std::ranges::find_if(spans, [&](const SpannedToken& token) {
                return token.end_byte >= spans[spans.size() / 2].end_byte;
              }) - spans.begin());
    Ids behind = tokenizer.encode(text, {7, 8});
    behind.erase(behind.begin(), behind.begin() + 2);
    EXPECT_EQ(behind, expected);
  }
}

TEST(LongTexts, HaveTheIdsOfTheWholeText) {
  expect_ids_of_whole_texts(small_model(), "small");
  expect_ids_of_whole_texts(train({}), "bpe");
  expect_ids_of_whole_texts(train({{"add_dummy_prefix", "false"}}), "no prefix");
  // Pieces cross spaces here: "e\u2581t".
  expect_ids_of_whole_texts(train({{"split_by_whitespace", "false"}}), "pieces across spaces");
  expect_ids_of_whole_texts(train({{"allow_whitespace_only_pieces", "true"}}), "pieces of spaces");
  expect_ids_of_whole_texts(train({{"user_defined_symbols", "b\xe2\x96\x81police,x y,<s>e"}}), "symbols");
  expect_ids_of_whole_texts(train({{"byte_fallback", "false"}, {"character_coverage", "0.98"}}),
                            "unknown letters");
  expect_ids_of_whole_texts(train({{"treat_whitespace_as_suffix", "true"}}), "spaces behind words");
  expect_ids_of_whole_texts(train({{"remove_extra_whitespaces", "true"}}), "fewer spaces");
  expect_ids_of_whole_texts(train({{"normalization_rule_name", "nmt_nfkc"}}), "nfkc");
  expect_ids_of_whole_texts(train({{"model_type", "unigram"}}), "unigram");
  expect_ids_of_whole_texts(train({{"model_type", "char"}}), "char");
  if (const auto llama = shared_file("data/models/llama_tokenizer/tokenizer.model"))
    expect_ids_of_whole_texts(read_whole_file(*llama, 1 << 24, ExitCode::kInputData), "llama");
}

TEST(LongTexts, OverAMebibyteNeedAPlaceToCut) {
  const Tokenizer tokenizer(small_model(), "small");
  const std::string words = random_text(1'200'000, 1), word((1 << 20) + 1, 'q');
  EXPECT_GT(tokenizer.encode(words).size(), 200'000U);
  for (const std::string& text : {word, "a " + word, word + " a", words + " " + word + " " + words})
    EXPECT_THROW(tokenizer.encode(text), LongWordError);
  // No two of these letters are in one piece, so the longest word is cheap to encode.
  EXPECT_EQ(tokenizer.encode("a " + word.substr(0, 300'000) + " b").size(),
            tokenizer.encode("a").size() + tokenizer.encode(word.substr(0, 300'000)).size() +
                tokenizer.encode("b").size());
  for (const auto& [key, value] :
       {std::pair{"model_type", "unigram"}, {"normalization_rule_name", "nmt_nfkc"}}) {
    const Tokenizer uncut(train({{key, value}}), "uncut");
    EXPECT_THROW(uncut.encode(words), LongWordError) << value;
  }
}

TEST(LongTexts, HaveTheirSeparatorWhereItIs) {
  const Tokenizer tokenizer(small_model(), "small");
  const PromptTemplate prompt(tokenizer, "{document} the end of it:");
  // A document that ends in a space gets other ids at the separator than usual.
  for (const char* end : {"", " ", "  "}) {
    const std::string document = random_text(150'000, 5) + end;
    const EncodedPrompt encoded = prompt.encode(document);
    const Ids separator(encoded.tokens.begin() + encoded.separator_begin, encoded.tokens.end());
    EXPECT_EQ(" " + tokenizer.decode(separator), prompt.separator());
  }
}

}  // namespace
}  // namespace ripstop
