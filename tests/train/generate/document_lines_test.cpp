#include "train/generate/document_lines.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"

namespace ripstop {
namespace {

std::string refusal(const std::string& bytes) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "in", bytes);
  try {
    TextLines lines((scratch / "in").string());
    while (next_document(lines)) continue;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInputData);
    return std::string(error.what()).substr(scratch.path().string().size() + 1);
  }
  return "";
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
}

TEST(DocumentLines, WithoutADocumentNameTheirFields) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "in", "{\"id\": \"a\", \"summary\": \"s\", \"length\": 7, \"article\": \"text\"}\n");
  TextLines lines((scratch / "in").string());
  try {
    next_document(lines);
    FAIL() << "no document";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the line has id, summary, length, article"), std::string::npos)
        << error.what();
    EXPECT_EQ(error.hint(), "rename the field of the text: jq -c '.document = .article' IN.jsonl >OUT.jsonl");
  }
}

TEST(DocumentLines, GetTheirSummary) {
  EXPECT_EQ(with_summary(R"({"id": 7, "document": "d\u00e9", "x": [1.50, true]})", "s \"q\""),
            "{\"id\":7,\"document\":\"d\u00e9\",\"x\":[1.5,true],\"summary\":\"s \\\"q\\\"\"}");
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
