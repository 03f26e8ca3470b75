#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <random>

#include "data/dataset/prompt_template.h"
#include "data/files/hash.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_error.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

void expect_no_tokenizer(const std::filesystem::path& path, const std::string& word,
                         const std::string& hint = "") {
  const auto open = [&] { Tokenizer tokenizer(path); };
  expect_error(open, ExitCode::kInputData, word, hint);
  // SentencePiece's own messages name its source files.
  const std::string what = error_of(open).what();
  EXPECT_EQ(what.find("src/"), std::string::npos) << what;
}

TEST(TokenizerTest, TrainedByLlamasConventions) {
  const Tokenizer tokenizer(small_model(), "small");
  EXPECT_EQ(tokenizer.vocabulary_size(), 400);
  EXPECT_EQ(tokenizer.begin(), std::vector<int32_t>{1});
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_EQ(tokenizer.sha256(), sha256_hex(small_model()));
}

TEST(TokenizerTest, TextComesBackAsItWas) {
  const Tokenizer tokenizer(small_model(), "small");
  for (const std::string text : {"The harbour opened on Monday.", "12345", "  two  spaces ",
                                 "naïve — “quotes” 東京 🎈", "line\n\nline", "", "tab\tand\rreturn"}) {
    const auto ids = tokenizer.encode(text);
    for (const int32_t id : ids) EXPECT_NE(id, 0) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(TokenizerTest, PiecesHaveANameAndTheirBytes) {
  const Tokenizer tokenizer(small_model(), "small");
  const std::string text = "The  harbour\nna\u00efve \u6771 9";
  std::string bytes, names;
  for (const int32_t id : tokenizer.encode(text)) {
    EXPECT_FALSE(tokenizer.piece(id).is_special);
    bytes += tokenizer.piece(id).text;
    names += tokenizer.piece(id).name;
  }
  EXPECT_EQ(bytes, " " + text);  // the model puts a space before the text
  EXPECT_HAS(names, "<0x0A>");
  EXPECT_HAS(names, "<0xE6>");
  EXPECT_TRUE(tokenizer.piece(tokenizer.eos()).is_special);
  EXPECT_EQ(tokenizer.piece(tokenizer.eos()).name, "</s>");
  EXPECT_EQ(tokenizer.piece(tokenizer.eos()).text, "");
  EXPECT_THROW(tokenizer.piece(400), Error);
  EXPECT_THROW(tokenizer.piece(-1), Error);
}

TEST(TokenizerTest, DigitsAreSplit) {
  const Tokenizer tokenizer(small_model(), "small");
  EXPECT_GE(tokenizer.encode("2024").size(), 4u);
}

TEST(TokenizerTest, SameLinesSameModel) {
  EXPECT_EQ(sha256_hex(train_small_model()), sha256_hex(small_model()));
}

TEST(TokenizerTest, SpansEndWhereTheTextDoes) {
  const Tokenizer tokenizer(small_model(), "small");
  const std::string text = "A té\n\nTL;DR:";
  const auto spans = tokenizer.encode_with_spans(text);
  const auto ids = tokenizer.encode(text);
  ASSERT_EQ(spans.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(spans[i].id, ids[i]);
    if (i > 0) {
      EXPECT_GE(spans[i].end_byte, spans[i - 1].end_byte);
    }
  }
  EXPECT_EQ(spans.back().end_byte, static_cast<int64_t>(text.size()));
}

TEST(TokenizerTest, BadFilesAreRefusedInOneLine) {
  ScratchDirectory scratch;
  const std::string good = small_model();
  write_bytes(scratch / "empty.model", "");
  write_bytes(scratch / "half.model", good.substr(0, good.size() / 2));
  write_bytes(scratch / "noise.model", std::string(1000, '\xff'));
  write_bytes(scratch / "text.model", "this is not a model\n");
  write_bytes(scratch / "json/tokenizer.json", "{}");
  std::filesystem::create_directory(scratch / "nothing");
  expect_no_tokenizer(scratch / "absent.model", "no such file or directory", "give a SentencePiece model");
  expect_no_tokenizer(scratch / "empty.model", "empty");
  expect_no_tokenizer(scratch / "half.model", "not a SentencePiece model");
  expect_no_tokenizer(scratch / "noise.model", "not a SentencePiece model");
  expect_no_tokenizer(scratch / "text.model", "not a SentencePiece model");
  expect_no_tokenizer(scratch / "json", "tokenizer.json: ");
  expect_no_tokenizer("meta-llama/Llama-2-7b-hf", "no such file or directory, and nothing is downloaded",
                      "give a local directory with a tokenizer.model");
  expect_no_tokenizer(scratch / "nothing", "no tokenizer.model", "a .model file");
  // A pipe in a directory may never get a writer.
  std::filesystem::create_directory(scratch / "pipe");
  ASSERT_EQ(mkfifo((scratch / "pipe/tokenizer.model").c_str(), 0600), 0);
  expect_no_tokenizer(scratch / "pipe", "tokenizer.model: is not a plain file");
  std::filesystem::resize_file(scratch / "text.model", (int64_t{64} << 20) + 1);
  expect_no_tokenizer(scratch / "text.model", "more than 67108864 bytes");
}

TEST(TokenizerTest, AModelWithoutSpecialTokensIsRefused) {
  ScratchDirectory scratch;
  for (const char* special : {"bos", "eos"}) {
    std::unordered_map<std::string, std::string> arguments = {
        {"model_type", "char"}, {"vocab_size", "20"}, {"hard_vocab_limit", "false"}, {"minloglevel", "3"}};
    arguments[std::string(special) + "_id"] = "-1";
    write_bytes(scratch / "lines.txt", "some letters for a vocabulary\n");
    arguments["input"] = (scratch / "lines.txt").string();
    std::string model;
    ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train(arguments, nullptr, &model).ok());
    write_bytes(scratch / "some.model", model);
    expect_no_tokenizer(scratch / "some.model", std::string("no ") + special,
                        "those of T5 and PEGASUS do not");
  }
}

TEST(TokenizerTest, ADirectoryStandsForItsModel) {
  ScratchDirectory scratch;
  write_bytes(scratch / "hf/tokenizer.model", small_model());
  EXPECT_EQ(Tokenizer(scratch / "hf").sha256(), sha256_hex(small_model()));
}

TEST(TokenizerTest, AHostileCharacterMapNeverReachesTheLibrary) {
  ScratchDirectory scratch;
  write_bytes(scratch / "lines.txt", "some letters for a vocabulary\n");
  std::string model;
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train({{"input", (scratch / "lines.txt").string()},
                                                          {"model_type", "char"},
                                                          {"vocab_size", "20"},
                                                          {"hard_vocab_limit", "false"},
                                                          {"normalization_rule_name", "nmt_nfkc"},
                                                          {"minloglevel", "3"}},
                                                         nullptr, &model)
                  .ok());
  EXPECT_EQ(Tokenizer(model, "nfkc").encode("ｆｕｌｌ"), Tokenizer(model, "nfkc").encode("full"));
  // The map is by far the largest part of this model. Damage in it is either harmless or refused.
  std::mt19937 random(1);
  int refused = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::string damaged = model;
    const size_t at = 2000 + random() % (model.size() - 4000);
    for (size_t i = 0; i < 4; ++i) damaged[at + i] = '\x7f';
    const auto encode = [&] { Tokenizer(damaged, "damaged").encode("ｆｕｌｌ ﷺ ½ text"); };
    refused += error_of(encode).code() != ExitCode::kOk;
  }
  EXPECT_GT(refused, 20);
}

std::string train(const std::vector<std::string>& lines, int64_t vocabulary_size) {
  size_t next = 0;
  return train_tokenizer(
      [&](std::string& line) {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      vocabulary_size);
}

/// "WHAT | HINT" of the refusal to train a tokenizer of these lines.
std::string training_refusal(const std::vector<std::string>& lines, int64_t vocabulary_size) {
  return what_and_hint_of([&] { train(lines, vocabulary_size); }, ExitCode::kUsage);
}

/// Expects that the size in the refusal is the largest that these lines give.
void expect_largest_named(const std::vector<std::string>& lines, int64_t too_many) {
  const std::string found = training_refusal(lines, too_many);
  const std::string known =
      fmt::format("cannot train a tokenizer of {} pieces: the text gives at most ", too_many);
  ASSERT_EQ(found.find(known), 0u) << found;
  const int64_t most = std::stoll(found.substr(known.size()));
  EXPECT_HAS(found, fmt::format("| --vocab-size {} or less, or more text", most));
  EXPECT_EQ(Tokenizer(train(lines, most), "most").vocabulary_size(), most);
  EXPECT_HAS(training_refusal(lines, most + 1), fmt::format("at most {} ", most));
}

TEST(TokenizerTest, TooLittleTextForTheVocabularyIsACommandLineError) {
  // The words share pieces, which only training finds out.
  std::vector<std::string> lines;
  for (const char a : std::string("abcdefghij"))
    for (const char b : std::string("klmnopqrst")) lines.push_back(std::string(12, a) + std::string(12, b));
  expect_largest_named(lines, 2000);
  // So few words that the refusal needs no training, except to find the size that works.
  lines.clear();
  for (int i = 0; i < 20; ++i) lines.push_back(fmt::format("The harbour number {} opened on Monday.", i));
  expect_largest_named(lines, 8000);
  // With more words, training takes long, so the refusal names no size.
  lines.clear();
  for (int i = 0; i < 2000; ++i) lines.push_back(fmt::format("word{:08}", i));
  EXPECT_EQ(
      training_refusal(lines, 900'000),
      "cannot train a tokenizer of 900000 pieces: the text's 2000 different words are too few | a smaller "
      "--vocab-size (8000 is usual for a language), or more text");
}

// A hint must not name a size that is refused, too.
TEST(TokenizerTest, TooLittleTextForAnyVocabularyAsksForMore) {
  EXPECT_EQ(
      training_refusal({"a b c", "c a b"}, 5000),
      "cannot train a tokenizer: the text gives at most 266 pieces, at least 300 are needed | give more "
      "text, or --tokenizer FILE");
  EXPECT_EQ(training_refusal({"a b c", "c a b"}, 300), training_refusal({"a b c", "c a b"}, 5000));
}

TEST(TokenizerTest, MoreLettersThanPiecesAreACommandLineError) {
  std::string letters;
  for (int i = 0; i < 500; ++i)
    letters += {'\xe4', static_cast<char>(0xb8 + i / 64), static_cast<char>(0x80 + i % 64)};
  const std::string found = training_refusal({letters}, 400);
  const std::string known = "cannot train a tokenizer of 400 pieces: the text's letters alone take ";
  ASSERT_EQ(found.find(known), 0u) << found;
  const int64_t fewest = std::stoll(found.substr(known.size()));
  EXPECT_HAS(found, fmt::format("| --vocab-size {} is the least", fewest));
  EXPECT_EQ(Tokenizer(train({letters}, fewest), "fewest").vocabulary_size(), fewest);
  EXPECT_HAS(training_refusal({letters}, fewest - 1), "letters alone");
  const std::string word(70'000, 'q');  // too long for the trainer
  EXPECT_EQ(Tokenizer(train({letters, word}, fewest + 9), "word").vocabulary_size(), fewest + 9);
  std::vector<std::string> words;
  std::string line;  // too long, too, but its words are not
  for (int i = 0; i < 2000; ++i)
    line += (i > 0 ? " " : "") +
            words.emplace_back(std::string(12, 'a' + i % 10) + std::string(12, 'k' + i / 10 % 10));
  EXPECT_EQ(train({line}, 320), train(words, 320));
  EXPECT_HAS(training_refusal({"a b"}, 10), "300 to 1000000 are possible");
}

// The ids that transformers 4.46 gives (fast and slow tokenizers agree) for the same tokenizer.model, without
// BOS.
TEST(TokenizerTest, LlamasIdsAreThoseOfHuggingFace) {
  const auto model = shared_file("data/models/llama_tokenizer");
  if (!model) GTEST_SKIP() << "../shared is absent";
  const Tokenizer tokenizer(*model);
  const std::vector<std::pair<std::string, std::vector<int32_t>>> cases = {
      {"The harbour opened on Monday.\n\nTL;DR:",
       {450, 4023, 6526, 6496, 373, 27822, 29889, 13, 13, 14632, 29936, 8353, 29901}},
      {"12.  He paid £3,400 — “too much”, she said.\n\nTL;DR:",
       {29871, 29896, 29906, 29889, 29871, 940,  12530, 15151, 29941, 29892, 29946, 29900, 29900, 813,
        1346,  517,   29877, 1568,  9363,  1183, 1497,  29889, 13,    13,    14632, 29936, 8353,  29901}},
      {" leading and trailing ", {29871, 8236, 322, 25053, 29871}},
      {"naïve café 東京 🎈\tend",
       {1055, 30085, 345, 274, 28059, 29871, 30591, 30675, 29871, 243, 162, 145, 139, 12, 355}},
      {"a    b\n\n\nc", {263, 1678, 289, 13, 13, 13, 29883}}};
  for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer.encode(text), ids) << text;
  const PromptTemplate prompt(tokenizer, std::string(kDefaultTemplate));
  std::vector<int32_t> expected = {1};
  expected.insert(expected.end(), cases[0].second.begin(), cases[0].second.end());
  const EncodedPrompt encoded = prompt.encode("The harbour opened on Monday.");
  EXPECT_EQ(encoded.tokens, expected);
  EXPECT_EQ(encoded.separator_begin, 8);
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAreRefused) {
  const Tokenizer tokenizer(small_model(), "small");
  EXPECT_THROW(tokenizer.decode({5, 400}), Error);
  EXPECT_THROW(tokenizer.decode({-1}), Error);
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(PromptTemplateTest, APromptIsBosAndTheWholeTextEncodedAtOnce) {
  const Tokenizer tokenizer(small_model(), "small");
  const PromptTemplate prompt(tokenizer, std::string(kDefaultTemplate));
  EXPECT_EQ(prompt.separator(), "\n\nTL;DR:");
  // Documents whose end may merge with the separator's first piece, and documents that contain the separator.
  for (const std::string document : {"The harbour opened.", "ends with TL;", "x\n", "", "東京\n\nTL;DR:"}) {
    const EncodedPrompt encoded = prompt.encode(document);
    std::vector<int32_t> expected = tokenizer.begin();
    const auto ids = tokenizer.encode(document + "\n\nTL;DR:");
    expected.insert(expected.end(), ids.begin(), ids.end());
    EXPECT_EQ(encoded.tokens, expected);
    const std::vector<int32_t> kept(expected.begin() + encoded.separator_begin, expected.end());
    const std::string text = tokenizer.decode(kept);
    EXPECT_HAS(text, "\n\nTL;DR:") << document;
    EXPECT_LE(text.size(), std::string("\n\nTL;DR:").size() + 8) << document;
  }
}

TEST(PromptTemplateTest, APairGoesOnAfterASpaceAndEnds) {
  const Tokenizer tokenizer(small_model(), "small");
  const PromptTemplate prompt(tokenizer, std::string(kDefaultTemplate));
  const TokenExample pair = prompt.encode_pair("A document.", "A summary.");
  EXPECT_EQ(pair.tokens.front(), 1);
  EXPECT_EQ(pair.tokens.back(), tokenizer.eos());
  EXPECT_EQ(tokenizer.decode(pair.tokens), "A document.\n\nTL;DR: A summary.");
  const std::vector<int32_t> summary(pair.tokens.begin() + pair.spans.at(0).target_begin, pair.tokens.end());
  EXPECT_EQ(tokenizer.decode(summary), "A summary.");
}

TEST(PromptTemplateTest, AModelThatAddsNoSpaceGetsOneBeforeTheSummary) {
  ScratchDirectory scratch;
  write_bytes(scratch / "lines.txt", "A document. TL;DR: A summary.\n");
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", "char"},
      {"vocab_size", "40"},
      {"hard_vocab_limit", "false"},
      {"character_coverage", "1"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"minloglevel", "3"},
      {"input", (scratch / "lines.txt").string()}};
  std::string model;
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train(arguments, nullptr, &model).ok());
  const Tokenizer tokenizer(model, "without a prefix");
  const TokenExample pair =
      PromptTemplate(tokenizer, "{document} TL;DR:").encode_pair("A document.", "A summary.");
  EXPECT_EQ(tokenizer.decode(pair.tokens), "A document. TL;DR: A summary.");
}

TEST(PromptTemplateTest, TemplatesThatCannotWorkAreCommandLineErrors) {
  const Tokenizer tokenizer(small_model(), "small");
  for (const char* wrong : {"", "TL;DR:", "{document}", "{document} {document}:", "{document}\n\nTL;DR: "})
    EXPECT_EQ(error_of([&] { PromptTemplate prompt(tokenizer, wrong); }).code(), ExitCode::kUsage) << wrong;
  const PromptTemplate framed(tokenizer, "Article: {document}\nSummary:");
  EXPECT_EQ(tokenizer.decode(framed.encode("x").tokens), "Article: x\nSummary:");
}

// Examples spell a line feed as backslash and n, which a shell's single quotes keep.
TEST(PromptTemplateTest, TypedLineFeedsAreLineFeeds) {
  EXPECT_EQ(typed_template("{document}\\n\\nTL;DR:"), "{document}\n\nTL;DR:");
  EXPECT_EQ(typed_template("a\\tb\nc"), "a\tb\nc");
  EXPECT_EQ(typed_template("\\"), "\\");
}

}  // namespace
}  // namespace ripstop
