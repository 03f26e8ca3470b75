#include "data/text_lines.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"

namespace ripstop {
namespace {

using Texts = std::vector<std::string>;

class TextLinesTest : public testing::Test {
 protected:
  std::string file(const std::string& bytes) {
    write_bytes(scratch_ / "texts", bytes);
    return (scratch_ / "texts").string();
  }
  // What reading `bytes` is refused with; "" where it is not.
  std::string refusal(const std::string& bytes) {
    try {
      read_summaries(file(bytes));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInputData);
      return std::string(error.what()).substr(scratch_.path().string().size() + 1);
    }
    return "";
  }
  ScratchDirectory scratch_;
};

TEST_F(TextLinesTest, PlainLinesAreTexts) {
  EXPECT_EQ(read_summaries(file("one\ntwo words\n\nfour")), (Texts{"one", "two words", "", "four"}));
  EXPECT_EQ(read_summaries(file("\xEF\xBB\xBFone\r\ntwo\r\n")), (Texts{"one", "two"}));
  EXPECT_EQ(read_summaries(file("\n\n")), (Texts{"", ""}));
  EXPECT_EQ(read_summaries(file("{ is how it begins\nplain")), (Texts{"{ is how it begins", "plain"}));
}

TEST_F(TextLinesTest, JsonObjectsHoldASummary) {
  EXPECT_EQ(read_summaries(
                file("\n{\"summary\": \"a\\u00e9\", \"id\": 1}\n\n  {\"id\": 2, \"summary\": \"\"}\n \n")),
            (Texts{"a\u00e9", ""}));
}

TEST_F(TextLinesTest, WhatDoesNotFitIsRefusedWithItsLine) {
  EXPECT_EQ(refusal("{\"summary\": \"a\"}\nplain\n"), "texts:2: not a JSON object");
  EXPECT_EQ(refusal("{\"summary\": \"a\"}\n[1]\n"), "texts:2: not a JSON object");
  EXPECT_EQ(refusal("\n{\"text\": \"a\"}\n"), "texts:2: no field 'summary'");
  EXPECT_EQ(refusal("{\"summary\": 3}\n"), "texts:1: 'summary' is of type number, expected a string");
  EXPECT_EQ(refusal("good\nbad \xC3\n"), "texts:2: invalid UTF-8 at byte 5");
  EXPECT_EQ(refusal("{\"summary\": \"\xFF\"}\n"), "texts:1: invalid UTF-8 at byte 14");
  EXPECT_EQ(refusal(""), "texts has no text");
  EXPECT_EQ(refusal(std::string(100000, '[') + "\n"), "");
  EXPECT_THROW(read_summaries((scratch_ / "absent").string()), Error);
  EXPECT_THROW(read_summaries(scratch_.path().string()), Error);
}

// The table of well-formed sequences of RFC 3629, section 4, from both sides of every border.
TEST(Utf8, IsToldFromWhatIsNot) {
  for (const char* good : {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(valid_utf8_bytes(good), std::ssize(std::string(good))) << good;
  for (const char* bad : {"\x80", "\xBF", "\xC0\xAF", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF",
                          "\xE0\xA0", "\xE1\x80\x41", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                          "\xF1\x80\x80\xC0", "\xF5\x80\x80\x80", "\xFF"})
    EXPECT_EQ(valid_utf8_bytes("ab" + std::string(bad)), 2);
  EXPECT_EQ(valid_utf8_bytes(std::string_view("a\0b", 3)), 3);
}

}  // namespace
}  // namespace ripstop
