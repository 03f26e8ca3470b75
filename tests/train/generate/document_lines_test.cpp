#include "train/generate/document_lines.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

std::string refusal(const std::string& bytes) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "in", bytes);
  const auto read_all = [&] {
    TextLines lines((scratch / "in").string());
    while (next_document(lines)) continue;
  };
  const std::string what = what_of(read_all, ExitCode::kInputData);
  return what.empty() ? "" : what.substr(scratch.path().string().size() + 1);
}

TEST(DocumentLines, AreReadOneByOne) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "in",
              "\n{\"document\": \"one\\ntwo\", \"id\": 7}\n \n{\"id\": 8, \"document\": \"\"}"
              "\n{\"document\": null}\n");
  TextLines lines((scratch / "in").string());
  EXPECT_EQ(next_document(lines)->document, "one\ntwo");
  EXPECT_EQ(next_document(lines)->document, "");
  EXPECT_EQ(next_document(lines)->document, "");  // of null
  EXPECT_EQ(next_document(lines), std::nullopt);
}

TEST(DocumentLines, ThatDoNotFitAreRefusedWithTheirNumber) {
  const std::string good = "{\"document\": \"\"}\n";
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal(good + "\n{\"text\": \"a\"}\n"), "in:3: no field 'document'; the line has text");
  EXPECT_EQ(refusal(good + "{}\n"), "in:2: no field 'document'; the line has no fields");
  EXPECT_EQ(refusal(good + "{\"document\": 7}\n"), "in:2: 'document' is of type number, expected a string");
  EXPECT_EQ(refusal(good + "plain\n"), "in:2: not a JSON object: 'plain'");
  EXPECT_EQ(refusal(good + "[\"document\"]\n"), "in:2: not a JSON object: '[\"document\"]'");
  EXPECT_EQ(refusal(good + "{\"document\": \"a\"\n"), "in:2: not a JSON object: '{\"document\": \"a\"'");
  EXPECT_EQ(refusal(good + "{\"document\": \"\xFF\"}\n"), "in:2: invalid UTF-8 at byte 15");
  const std::string deep = "{\"document\": " + std::string(100000, '[') + std::string(100000, ']') + "}\n";
  EXPECT_EQ(refusal(good + deep), "in:2: nested deeper than 200 levels");
  std::string wide = "{\"document\": \"\"";
  for (int i = 0; i < 20'000; ++i) wide += ",\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(refusal(good + wide + "}\n"), "in:2: more than 20000 keys");
}

std::string hint_of(const std::string& line) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "in", line + "\n");
  TextLines lines((scratch / "in").string());
  return error_of([&] { next_document(lines); }).hint();
}

// The line is written again with its summary: it must be JSON by then.
TEST(DocumentLines, PythonsNaNBecomesNull) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "in", "{\"document\": \"a NaN\", \"score\": NaN}\n");
  TextLines lines((scratch / "in").string());
  const std::optional<DocumentLine> found = next_document(lines);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->document, "a NaN");
  EXPECT_EQ(with_summary(found->line, "s", 0), R"({"document":"a NaN","score":null,"summary":"s"})");
}

// The words are ripstop's, not those of the JSON library.
TEST(DocumentLines, AFaultIsNamedWithItsPlace) {
  for (const char* cut : {"{\"document\": \"a", "{\"document\": \"a\"", "{\"document\":", "{"})
    EXPECT_EQ(hint_of(cut).find("the line ends within the object: "), 0u) << cut << ": " << hint_of(cut);
  for (const char* half : {R"({"document": "a\ud800"})", R"({"document": "a\udc00 b"})"})
    EXPECT_HAS(hint_of(half), "one half is no character");
  EXPECT_EQ(hint_of(R"({"document": "a"} x)"), "no JSON from byte 19 on: 'x'");
  EXPECT_EQ(hint_of("{\"document\": \xc3\xa9}"), "no JSON from byte 14 on: '\xc3\xa9}'");
  EXPECT_EQ(hint_of(R"({"document": 1e999})"), "a number is too large for a 64-bit float");
  for (const char* bad :
       {"{\"document\": \"a", R"({"document": "\ud800"})", R"({"document": "\q"})", "{x}", "{,}"})
    for (const char* word : {"json.exception", "parse error", "column", "syntax error"})
      EXPECT_EQ(hint_of(bad).find(word), std::string::npos) << hint_of(bad);
}

// The command in the hint for a line without a document.
std::string rename_command(const std::string& line) {
  const std::string hint = hint_of(line);
  return hint.substr(hint.find("jq "));
}

TEST(DocumentLines, WithoutADocumentNameTheirFields) {
  const std::string line = R"({"id": "a", "summary": "s", "length": 7, "article": "text"})";
  EXPECT_EQ(refusal(line), "in:1: no field 'document'; the line has id, summary, length, article");
  EXPECT_EQ(rename_command(line), "jq -c '.document = .[\"article\"]' IN.jsonl >OUT.jsonl");
  EXPECT_EQ(rename_command(R"({"x": 1})"), "jq -c '.document = .NAME' IN.jsonl >OUT.jsonl");
  // Names with characters that jq or the shell would interpret.
  EXPECT_EQ(rename_command(R"({"news-text": "t"})"),
            "jq -c '.document = .[\"news-text\"]' IN.jsonl >OUT.jsonl");
  EXPECT_EQ(rename_command(R"({"1st": "t"})"), "jq -c '.document = .[\"1st\"]' IN.jsonl >OUT.jsonl");
  EXPECT_EQ(rename_command(R"({"it's": "t"})"), "jq -c '.document = .[\"it'\\''s\"]' IN.jsonl >OUT.jsonl");
  EXPECT_EQ(rename_command(R"({"a\"b": "t"})"), "jq -c '.document = .[\"a\\\"b\"]' IN.jsonl >OUT.jsonl");
}

TEST(DocumentLines, LongNamesAndManyAreShortened) {
  const std::string cut = std::string(38, 'x');
  const std::string line = "{\"" + cut + "\xc3\xa9\xc3\xa9\": \"t\"}\n";
  EXPECT_EQ(refusal(line), "in:1: no field 'document'; the line has " + cut + "\xc3\xa9...");
  EXPECT_EQ(refusal("{\"x" + cut + "\xc3\xa9\": \"t\"}\n"),
            "in:1: no field 'document'; the line has x" + cut + "...");
  EXPECT_EQ(rename_command("{\"" + cut + "xxx\": \"t\", \"body\": \"t\"}"),
            "jq -c '.document = .[\"body\"]' IN.jsonl >OUT.jsonl");
  std::string many = "{\"f0\": 0";
  for (int i = 1; i < 20; ++i) many += ", \"f" + std::to_string(i) + "\": 0";
  EXPECT_EQ(
      refusal(many + "}"),
      "in:1: no field 'document'; the line has f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11 and 8 more");
}

TEST(DocumentLines, GetTheirSummary) {
  EXPECT_EQ(with_summary(R"({"id": 7, "document": "d\u00e9", "x": [1.50, true]})", "s \"q\""),
            R"({"id":7,"document":"d\u00e9","x":[1.50, true],"summary":"s \"q\""})");
  EXPECT_EQ(
      with_summary(R"({ "id" : 123456789012345678901234 ,"f":1e2,"o":{"a,}":[-0.10]},"document":""})", "s"),
      R"({"id":123456789012345678901234,"f":1e2,"o":{"a,}":[-0.10]},"document":"","summary":"s"})");
  EXPECT_EQ(with_summary(R"({"summary": "old", "document": "d"})", "new"),
            R"({"document":"d","reference":"old","summary":"new"})");
  EXPECT_EQ(with_summary(R"({"summary": "old", "reference": "r", "document": "d"})", "new"),
            R"({"reference":"r","document":"d","summary":"new"})");
  EXPECT_EQ(with_summary(R"({"document": "d"})", "s", 12),
            R"({"document":"d","summary":"s","cut_tokens":12})");
  // The input may be the output of an earlier call.
  EXPECT_EQ(with_summary(R"({"document": "d", "cut_tokens": 3})", "s"), R"({"document":"d","summary":"s"})");
}

}  // namespace
}  // namespace ripstop
