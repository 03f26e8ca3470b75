#include "data/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace ripstop {
namespace {

// Both sides of every border in the table of well-formed sequences, RFC 3629, section 4. The check takes
// eight ASCII bytes at once, so the test puts several lengths of ASCII around each sequence.
TEST(Utf8Test, WellFormedSequencesAreTheTableOfTheRfc) {
  for (const std::string ascii : {"", "ab", "eight by", "eight bytes, and more"}) {
    for (const char* good :
         {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
          "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "é — 東京 🎈"})
      EXPECT_FALSE(invalid_utf8(ascii + good + ascii)) << good;
    for (const char* bad :
         {"\x80", "\xBF", "\xC0\xAF", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xE0\xA0",
          "\xE0\x80\xAF", "\xE1\x80\x41", "\xE6\x9D", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
          "\xF1\x80\x80\xC0", "\xF5\x80\x80\x80", "\xFF"}) {
      EXPECT_EQ(invalid_utf8(ascii + bad), std::ssize(ascii));
      EXPECT_EQ(invalid_utf8(ascii + bad + ascii), std::ssize(ascii));
    }
  }
  EXPECT_FALSE(invalid_utf8(std::string_view("a\0b", 3)));
}

TEST(Utf8Test, ABeginningHasWholeCharacters) {
  EXPECT_EQ(begin_of("aé東", 5), "aé...");
}

TEST(Utf8Test, StripSeesSpacesAsPythonDoes) {
  EXPECT_EQ(strip("  a b\t\n"), "a b");
  EXPECT_EQ(strip("\u00a0\u2003x\u3000\u2029"), "x");
  EXPECT_EQ(strip(" \u200b "), "\u200b");  // zero width space is no white space there
  EXPECT_EQ(strip(" \u00a0 "), "");
  EXPECT_EQ(strip("é"), "é");
}

}  // namespace
}  // namespace ripstop
