#include "data/process/shell_word.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(ShellWord, IsQuotedOnlyIfTheShellWouldReadMoreIntoIt) {
  EXPECT_EQ(shell_word("data/xsum-v1_2/train.jsonl.gz"), "data/xsum-v1_2/train.jsonl.gz");
  EXPECT_EQ(shell_word("r\xc3\xa9sum\xc3\xa9.txt"), "r\xc3\xa9sum\xc3\xa9.txt");
  EXPECT_EQ(shell_word("my data/a.jsonl"), "'my data/a.jsonl'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
  for (const char* text : {"$HOME", "a;b", "a&b", "a|b", "a>b", "(a)", "*", "a?", "[a]", "~", "#a", "a\\b",
                           "a\"b", "`a`", "!a", "{a,b}", "a\nb", "a\tb"})
    EXPECT_EQ(shell_word(text), "'" + std::string(text) + "'");
}

}  // namespace
}  // namespace ripstop
