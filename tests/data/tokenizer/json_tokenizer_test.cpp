// Each component of a tokenizer.json alone. Expected values are those of Python's `tokenizers` 0.23.
#include "data/tokenizer/json_tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "data/tokenizer/token_decoder.h"
#include "model/core/error.h"
#include "tests/data/tokenizer/small_tokenizer_json.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;
using Special = JsonTokenizer::Special;

/// `text` behind the normalizer.
std::string normalized(const std::string& normalizer, const std::string& text) {
  OrderedJson json = small_tokenizer_json(byte_letters());
  json["normalizer"] = json_of(normalizer);
  json["pre_tokenizer"] = json_of(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})");
  json["decoder"] = json_of(R"({"type": "ByteLevel"})");
  const JsonTokenizer tokenizer = tokenizer_of(json);
  return tokenizer.decode(ids_of(tokenizer, text), false);
}

/// The pieces of `text`, each with what was removed before it: every piece is one unk token.
Texts pieces(const std::string& pre_tokenizer, const std::string& text) {
  OrderedJson json = small_tokenizer_json({"<unk>"});
  json["model"]["unk_token"] = "<unk>";
  json["model"]["fuse_unk"] = true;
  json["pre_tokenizer"] = json_of(pre_tokenizer);
  Texts found;
  size_t begin = 0;
  for (const SpannedToken& token : tokenizer_of(json).encode(text, Special::kTokens)) {
    found.push_back(text.substr(begin, static_cast<size_t>(token.end_byte) - begin));
    begin = static_cast<size_t>(token.end_byte);
  }
  return found;
}

TEST(JsonTokenizerTest, Normalizers) {
  EXPECT_EQ(normalized(R"({"type": "NFC"})", "cafe\u0301 \u212b"), "caf\u00e9 \u00c5");
  EXPECT_EQ(normalized(R"({"type": "NFD"})", "caf\u00e9 \uac00"), "cafe\u0301 \u1100\u1161");
  EXPECT_EQ(normalized(R"({"type": "NFKC"})", "\ufb01\u00b2e\u0301"), "fi2\u00e9");
  EXPECT_EQ(normalized(R"({"type": "NFKD"})", "\ufb01\u00e9"), "fie\u0301");
  EXPECT_EQ(normalized(R"({"type": "NFC"})", "e\u0316\u0301"), "\u00e9\u0316");
  EXPECT_EQ(normalized(R"({"type": "Lowercase"})", "ÀB\u0130Σ"), "àbi\u0307σ");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": true})", "\u00a0 a b\u3000\n"),
            "a b");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": false})", "  a "), "a ");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": true})", "  \n"), "");
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "ab"})", "c"), "abc");
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "ab"})", ""), "");
  EXPECT_EQ(normalized(R"({"type": "Replace", "pattern": {"String": "aa"}, "content": "b"})", "aaaxa"),
            "baxa");
  EXPECT_EQ(normalized(R"({"type": "ByteLevel"})", "\u00e9 "), "\u00c3\u00a9\u0120");
  EXPECT_EQ(normalized(R"({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Sequence",
    "normalizers": [{"type": "Replace", "pattern": {"String": "e"}, "content": "E"}]}, {"type": "NFC"}]})",
                       "\u00e9"),
            "\u00c9");
}

TEST(JsonTokenizerTest, CodePointsBehindUnicode9AreNotNormalized) {
  EXPECT_EQ(normalized(R"({"type": "NFKC"})", "\u32ff\u32fe"), "\u32ff\u30f2");
  EXPECT_EQ(normalized(R"({"type": "NFD"})", "a\U0001e2ec\u0316"), "a\U0001e2ec\u0316");
}

TEST(JsonTokenizerTest, BehaviorsOfSplit) {
  const auto split = [](const std::string& behavior, const std::string& more = R"(, "invert": false)") {
    return pieces(
        R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior + "\"" + more + "}",
        "the-final--countdown-");
  };
  EXPECT_EQ(split("Removed"), (Texts{"the", "-final", "--countdown"}));
  EXPECT_EQ(split("Isolated"), (Texts{"the", "-", "final", "-", "-", "countdown", "-"}));
  EXPECT_EQ(split("MergedWithPrevious"), (Texts{"the-", "final-", "-", "countdown-"}));
  EXPECT_EQ(split("MergedWithNext"), (Texts{"the", "-final", "-", "-countdown", "-"}));
  EXPECT_EQ(split("Contiguous"), (Texts{"the", "-", "final", "--", "countdown", "-"}));
  EXPECT_EQ(split("Removed", R"(, "invert": true)"), (Texts{"the-", "final-", "-", "countdown-"}));
}

TEST(JsonTokenizerTest, PreTokenizers) {
  EXPECT_EQ(pieces(R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})",
                   "I'm  12a,\n\n b\t"),
            (Texts{"I", "'m", " ", " 12", "a", ",", "\n\n", " b", "\t"}));
  EXPECT_EQ(pieces(R"({"type": "Digits", "individual_digits": true})", "a12\u00b2b"),
            (Texts{"a", "1", "2", "\u00b2", "b"}));
  EXPECT_EQ(pieces(R"({"type": "Digits", "individual_digits": false})", "a12\u00b2b"),
            (Texts{"a", "12\u00b2", "b"}));
  EXPECT_EQ(pieces(R"({"type": "Punctuation"})", "a!?\u2026b$\u2e43"),
            (Texts{"a", "!", "?", "\u2026", "b", "$", "\u2e43"}));
  EXPECT_EQ(pieces(R"({"type": "Punctuation", "behavior": "Contiguous"})", "a!?b\u2e43"),
            (Texts{"a", "!?", "b\u2e43"}));
  EXPECT_EQ(pieces(R"({"type": "Whitespace"})", "ab_1 c--d\u0301\u200d  e"),
            (Texts{"ab_1", " c", "--", "d\u0301\u200d", "  e"}));
  EXPECT_EQ(pieces(R"({"type": "WhitespaceSplit"})", " a,b\u3000c\u180ed "),
            (Texts{" a,b", "\u3000c\u180ed"}));
  EXPECT_EQ(pieces(R"({"type": "CharDelimiterSplit", "delimiter": "\u00e9"})", "a\u00e9b"),
            (Texts{"a", "\u00e9b"}));
  EXPECT_EQ(pieces(R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never"})", "a b  c"),
            (Texts{"a", " b", " ", " c"}));
  EXPECT_EQ(pieces(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": false})",
                   "a b"),
            (Texts{"a b"}));
  // Later pre-tokenizers see the letters of bytes: byte 0xb2 is the letter of a superscript two, a number.
  EXPECT_EQ(
      pieces(R"({"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"},
    {"type": "ByteLevel", "add_prefix_space": false}, {"type": "Digits", "individual_digits": false},
    {"type": "Split", "pattern": {"Regex": "[0-9][0-9]"}, "behavior": "Isolated", "invert": false}]})",
             "a..123 \u0472"),
      (Texts{"a", "..", "12", "3", " \u0472", ""}));
}

TEST(JsonTokenizerTest, MetaspaceMarksTheFirstOrEveryPiece) {
  OrderedJson json = small_tokenizer_json({"\u2581", "a", "b", "\u2581a"}, {"\u2581 a"});
  json["added_tokens"] = {added_token_json(4, "<s>", "special")};
  const auto ids = [&](const std::string& scheme, const std::string& text) {
    json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}};
    return ids_of(tokenizer_of(json), text);
  };
  EXPECT_EQ(ids("always", "a<s>a"), (Ids{3, 4, 3}));
  EXPECT_EQ(ids("first", "a<s>a"), (Ids{3, 4, 1}));
  EXPECT_EQ(ids("first", "<s>a"), (Ids{4, 1}));
  EXPECT_EQ(ids("never", "a a"), (Ids{1, 3}));
  EXPECT_EQ(ids("always", " a"), (Ids{3}));
}

TEST(JsonTokenizerTest, MergesGoByRankAndThenFromTheLeft) {
  const OrderedJson json = small_tokenizer_json({"a", "b", "c", "ab", "bc", "abc", "aa", "aaa"},
                                                {"b c", "a b", "ab c", "a bc", "a a"});
  const JsonTokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(ids_of(tokenizer, "abc"), (Ids{5}));
  EXPECT_EQ(ids_of(tokenizer, "abab"), (Ids{3, 3}));
  EXPECT_EQ(ids_of(tokenizer, "aaa"), (Ids{6, 0}));
  EXPECT_EQ(ids_of(tokenizer, "aXb"), (Ids{3})) << "an unknown letter without unk is nothing";
  EXPECT_EQ(ids_of(tokenizer, ""), Ids{});
}

TEST(JsonTokenizerTest, TheSecondRankOfAMergeCounts) {
  const JsonTokenizer tokenizer =
      tokenizer_of(small_tokenizer_json({"a", "b", "c", "ab", "bc"}, {"a b", "b c", "a b"}));
  EXPECT_EQ(ids_of(tokenizer, "abc"), (Ids{0, 4}));
}

TEST(JsonTokenizerTest, UnknownLetters) {
  OrderedJson json = small_tokenizer_json({"<unk>", "a", "<0xC3>", "<0xA9>", "<0xE4>"});
  json["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(ids_of(tokenizer_of(json), "XYa\u00e9"), (Ids{0, 0, 1, 0}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(ids_of(tokenizer_of(json), "XYa\u00e9Z"), (Ids{0, 1, 0}));
  json["model"]["byte_fallback"] = true;
  EXPECT_EQ(ids_of(tokenizer_of(json), "a\u00e9a"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(ids_of(tokenizer_of(json), "\u4e2d\u00e9a"), (Ids{2, 3, 0, 1})) << "bytes overtake unk";
  json["model"]["unk_token"] = "gone";
  EXPECT_THROW(ids_of(tokenizer_of(json), "X"), Error);
  EXPECT_EQ(ids_of(tokenizer_of(json), "a"), (Ids{1}));
}

TEST(JsonTokenizerTest, IgnoreMergesTakesWholeWords) {
  OrderedJson json = small_tokenizer_json({"a", "b", "ab", "abab"}, {"a b"});
  EXPECT_EQ(ids_of(tokenizer_of(json), "abab"), (Ids{2, 2}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids_of(tokenizer_of(json), "abab"), (Ids{3}));
}

TEST(JsonTokenizerTest, CutsBeforeSpacesChangeNoIds) {
  // "b" + "\u2581" merges across a space, "a" + "\u2581" never does; X is unknown.
  OrderedJson json =
      small_tokenizer_json({"\u2581", "a", "b", "\u2581a", "b\u2581", "\u2581\u2581", "b\u2581a", "<unk>"},
                           {"\u2581 \u2581", "b \u2581", "\u2581 a", "b\u2581 a"});
  const std::string text = "a\u2581a\u2581\u2581ab\u2581aX\u2581a";
  json["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(ids_of(tokenizer_of(json), text), (Ids{1, 3, 5, 1, 6, 7, 3}));
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(ids_of(tokenizer_of(json), "bX\u2581a"), (Ids{6}))
      << "neighbours of a letter that becomes nothing";
}

class AddedTokensTest : public testing::Test {
 protected:
  /// The spelling of every token, "." for text.
  Texts found(const std::string& text, Special special = Special::kTokens) {
    json_["model"]["unk_token"] = ".";
    json_["model"]["fuse_unk"] = true;
    const JsonTokenizer tokenizer = tokenizer_of(json_);
    Texts names;
    for (const int32_t id : ids_of(tokenizer, text, special)) names.emplace_back(tokenizer.piece_name(id));
    return names;
  }
  void add(const std::string& content, const std::string& flags = "") {
    json_["added_tokens"].push_back(
        added_token_json(1 + static_cast<int>(json_["added_tokens"].size()), content, flags));
  }
  OrderedJson json_ = small_tokenizer_json({"."});
};

TEST_F(AddedTokensTest, TheLongestOfTheLeftmostCounts) {
  add("<a>");
  add("<a>b");
  add("b<");
  EXPECT_EQ(found("x<a>b<a>"), (Texts{".", "<a>b", "<a>"}));
  EXPECT_EQ(found("b<a>"), (Texts{"b<", "."}));
  EXPECT_EQ(found("<a<a>"), (Texts{".", "<a>"}));
}

TEST_F(AddedTokensTest, SpecialTokensInATextAreTextUnlessAskedFor) {
  add("<s>", "special");
  add("<t>");
  EXPECT_EQ(found("x<s><t>"), (Texts{".", "<s>", "<t>"}));
  EXPECT_EQ(found("x<s><t>", Special::kText), (Texts{".", "<t>"}));
}

TEST_F(AddedTokensTest, WhiteSpaceBesideAToken) {
  add("<l>", "lstrip");
  add("<r>", "rstrip");
  EXPECT_EQ(found("x \u3000<l> x"), (Texts{".", "<l>", "."}));
  const JsonTokenizer tokenizer = tokenizer_of(json_);
  const auto tokens = tokenizer.encode("x <l> <r> \n<l>", Special::kTokens);
  std::vector<int64_t> ends;
  for (const SpannedToken& token : tokens) ends.push_back(token.end_byte);
  EXPECT_EQ(ends, (std::vector<int64_t>{1, 5, 6, 11, 14}));
}

TEST_F(AddedTokensTest, SpaceThatWasTakenIsNotTakenAgain) {
  add("\n\n", "lstrip rstrip");
  EXPECT_EQ(found("x\n\n\n\n\nx"), (Texts{".", "\n\n", "."}));
}

TEST_F(AddedTokensTest, SingleWordsStandAlone) {
  add("the", "single_word");
  EXPECT_EQ(found("the, the-there lathe \u00e9the the_ the"), (Texts{"the", ".", "the", ".", "the"}));
}

TEST_F(AddedTokensTest, NormalizedTokensAreFoundInNormalizedText) {
  json_["normalizer"] = json_of(R"({"type": "Lowercase"})");
  add("Day", "normalized");
  add("NIGHT");
  EXPECT_EQ(found("dAy night NIGHT"), (Texts{"Day", ".", "NIGHT"}));
}

TEST(JsonTokenizerTest, WhatPostProcessorsPutAroundAText) {
  OrderedJson json = small_tokenizer_json({"a", "<s>", "</s>"});
  EXPECT_EQ(tokenizer_of(json).prefix(), Ids{});
  const std::string shape =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "E", "type_id": 0}}], "pair": [],
    "special_tokens": {"B": {"id": "B", "ids": [1, 0], "tokens": ["<s>", "a"]},
                       "E": {"id": "E", "ids": [2], "tokens": ["</s>"]}}})";
  json["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, json_of(shape)}}};
  EXPECT_EQ(tokenizer_of(json).prefix(), (Ids{1, 0}));
  EXPECT_EQ(tokenizer_of(json).suffix(), (Ids{2}));
  json["post_processor"] = json_of(R"({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1],
    "trim_offsets": true, "add_prefix_space": false})");
  EXPECT_EQ(tokenizer_of(json).prefix(), (Ids{1}));
  EXPECT_EQ(tokenizer_of(json).suffix(), (Ids{2}));
}

/// The text of `tokens`, which are the pieces.
std::string decoded(const std::string& decoder, const Texts& tokens) {
  OrderedJson json = small_tokenizer_json(tokens);
  json["decoder"] = json_of(decoder);
  Ids ids(tokens.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  return tokenizer_of(json).decode(ids, false);
}

TEST(JsonTokenizerTest, Decoders) {
  EXPECT_EQ(decoded("null", {"a", "b"}), "a b");
  EXPECT_EQ(decoded(R"({"type": "Fuse"})", {"a", "b"}), "ab");
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {"\u0120a", "\u00c3", "\u00a9", "\u4e2d", "\u00e4\u00b8x"}),
            " a\u00e9\u4e2d\ufffdx");
  EXPECT_EQ(
      decoded(R"({"type": "ByteFallback"})", {"<0xC3>", "<0xA9>", "a", "<0xE4>", "<0xB8>", "b", "<0x0a>"}),
      "\u00e9a\ufffd\ufffdb\n");
  EXPECT_EQ(decoded(R"({"type": "Replace", "pattern": {"Regex": "a?"}, "content": "-"})", {"bab"}), "-b-b-");
  EXPECT_EQ(decoded(R"({"type": "Strip", "content": "_", "start": 2, "stop": 1})", {"___a__", "b"}), "_a_b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "_"})", {"_a", "_b"}), "a b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})", {"_a", "_b"}),
            " a b");
  EXPECT_EQ(decoded(R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
                    {"_a", "_b", "<0x41>"}),
            "a bA");
}

TEST(JsonTokenizerTest, BytesThatAreNoLetterBecomeOneReplacementForEachPart) {
  EXPECT_EQ(with_replacement_letters("a\xc3(\xe4\xb8(\xf0\x9f\x98(\x80\xff\xed\xa0\x80\xf4\x90z"),
            "a\ufffd(\ufffd(\ufffd(\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdz");
}

TEST(JsonTokenizerTest, SpecialTokensAreLeftOutIfAsked) {
  OrderedJson json = small_tokenizer_json({"a"});
  json["decoder"] = json_of(R"({"type": "Fuse"})");
  json["added_tokens"] = {added_token_json(1, "<s>", "special"), added_token_json(2, "<t>")};
  const JsonTokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.decode(Ids{1, 0, 2}, false), "<s>a<t>");
  EXPECT_EQ(tokenizer.decode(Ids{1, 0, 2}, true), "a<t>");
  EXPECT_EQ(tokenizer.vocabulary_size(), 3);
  EXPECT_EQ(tokenizer.added_token("<t>"), 2);
  EXPECT_EQ(tokenizer.added_token("a"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(2));
  EXPECT_THROW(tokenizer.decode(Ids{3}, false), Error);
  EXPECT_THROW(tokenizer.piece_name(-1), Error);
}

// transformers finds it under this name; the normalized form is what texts are searched for.
TEST(JsonTokenizerTest, ANormalizedAddedTokenHasTheNameOfItsFile) {
  OrderedJson json = small_tokenizer_json({"a"});
  json["normalizer"] = json_of(R"({"type": "Prepend", "prepend": "_"})");
  json["added_tokens"] = {added_token_json(1, "<e>", "normalized special")};
  EXPECT_EQ(tokenizer_of(json).piece_name(1), "<e>");
}

TEST(JsonTokenizerTest, BytesOfOneToken) {
  OrderedJson json = small_tokenizer_json({"\u0120\u00c3", "b"});
  json["decoder"] = json_of(R"({"type": "ByteLevel"})");
  EXPECT_EQ(tokenizer_of(json).piece_bytes(0), " \xc3");
  json = small_tokenizer_json({"\u2581a", "<0xC3>"});
  json["decoder"] = json_of(R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  EXPECT_EQ(tokenizer_of(json).piece_bytes(0), " a");
  EXPECT_EQ(tokenizer_of(json).piece_bytes(1), "\xc3");
}

TEST(JsonTokenizerTest, EndsOfTokens) {
  OrderedJson json = small_tokenizer_json({"\u2581", "a", "\u2581a", "<0xC3>", "<0xA9>"}, {"\u2581 a"});
  json["model"]["byte_fallback"] = true;
  json["normalizer"] =
      json_of(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, {"type": "NFC"}]})");
  std::vector<std::pair<int32_t, int64_t>> tokens;
  for (const auto& [id, end] : tokenizer_of(json).encode("e\u0301 a a", Special::kText))
    tokens.emplace_back(id, end);
  EXPECT_EQ(tokens, (std::vector<std::pair<int32_t, int64_t>>{{0, 0}, {3, 3}, {4, 3}, {2, 5}, {2, 7}}));
}

TEST(JsonTokenizerTest, TheHashIsOfWhatDecidesIdsAndTexts) {
  OrderedJson json = small_tokenizer_json({"a", "b", "ab"}, {"a b"});
  json["pre_tokenizer"] =
      json_of(R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})");
  json["added_tokens"] = {added_token_json(3, "<s>", "special")};
  const std::string first = tokenizer_of(json).sha256();
  EXPECT_EQ(first.size(), 64U);
  OrderedJson same = json;
  same["model"]["merges"] = json_of(R"([["a", "b"]])");
  same["model"]["ignore_merges"] = false;
  same["truncation"] = {{"max_length", 5}};
  same["padding"] = {{"pad_id", 5}};
  same["pre_tokenizer"] = json_of(R"({"type": "Sequence", "pretokenizers": [
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true}]})");
  same["model"]["vocab"] = {{"ab", 2}, {"b", 1}, {"a", 0}};
  EXPECT_EQ(tokenizer_of(same).sha256(), first);
  for (const char* change :
       {R"([{"op": "replace", "path": "/model/vocab", "value": {"a": 1, "b": 0, "ab": 2}}])",
        R"([{"op": "replace", "path": "/model/merges", "value": []}])",
        R"([{"op": "replace", "path": "/model/byte_fallback", "value": true}])",
        R"([{"op": "replace", "path": "/normalizer", "value": {"type": "NFC"}}])",
        R"([{"op": "replace", "path": "/pre_tokenizer/add_prefix_space", "value": true}])",
        R"([{"op": "replace", "path": "/decoder", "value": {"type": "Fuse"}}])",
        R"([{"op": "replace", "path": "/added_tokens/0/lstrip", "value": true}])"})
    EXPECT_NE(tokenizer_of(json.patch(json_of(change))).sha256(), first) << change;
  for (const auto& [type, split] :
       {std::pair("Punctuation", R"("punctuation"}, "behavior": "Isolated", "invert": false})"),
        {"Whitespace", R"("words"}, "behavior": "Removed", "invert": true})"}}) {
    json["pre_tokenizer"] = {{"type", type}};
    const std::string own = tokenizer_of(json).sha256();
    json["pre_tokenizer"] = json_of(R"({"type": "Split", "pattern": {"Regex": )" + std::string(split));
    EXPECT_NE(tokenizer_of(json).sha256(), own) << type;
  }
}

TEST(JsonTokenizerTest, LongTextsWithoutSpacesAndManyWords) {
  OrderedJson json = small_tokenizer_json({"a", "b", "ab", "abab"}, {"a b", "ab ab"});
  const JsonTokenizer tokenizer = tokenizer_of(json);
  std::string text;
  for (int i = 0; i < 1 << 19; ++i) text += "ab";
  EXPECT_EQ(ids_of(tokenizer, text), Ids(1 << 18, 3));
  // More words than the memory of words holds, twice.
  json = small_tokenizer_json(byte_letters());
  json["pre_tokenizer"] = json_of(R"({"type": "ByteLevel", "add_prefix_space": false})");
  const JsonTokenizer words = tokenizer_of(json);
  text.clear();
  for (int i = 0; i < 100'000; ++i) text += " " + std::to_string(i);
  text += text;
  const Ids ids = ids_of(words, text);
  EXPECT_EQ(std::string(ids.begin(), ids.end()), text);
}

TEST(JsonTokenizerTest, ThreadsShareATokenizer) {
  OrderedJson json = small_tokenizer_json(byte_letters());
  json["pre_tokenizer"] = json_of(R"({"type": "ByteLevel", "add_prefix_space": false})");
  const JsonTokenizer tokenizer = tokenizer_of(json);
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (std::string& text : found)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const Ids ids = ids_of(tokenizer, "word " + std::to_string(i) + " of many\n");
        text.append(ids.begin(), ids.end());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : found) EXPECT_EQ(text, found[0]);
  EXPECT_EQ(found[0].substr(0, 15), "word 0 of many\n");
}

}  // namespace
}  // namespace ripstop
