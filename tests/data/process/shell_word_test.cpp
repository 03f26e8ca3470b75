#include "data/process/shell_word.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace ripstop {
namespace {

// Sets $HOME, and sets it back at the end.
class ScopedHome {
 public:
  explicit ScopedHome(const char* home) : before_(std::getenv("HOME") == nullptr ? "" : std::getenv("HOME")) {
    setenv("HOME", home, 1);
  }
  ~ScopedHome() { setenv("HOME", before_.c_str(), 1); }

 private:
  std::string before_;
};

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

TEST(WithHome, IsThatOfTheShell) {
  const ScopedHome home("/h");
  EXPECT_EQ(with_home("~"), "/h");
  EXPECT_EQ(with_home("~/a/~"), "/h/a/~");
  for (const char* path : {"", "a", "./~/a", "a/~", "/~", "a~"}) EXPECT_EQ(with_home(path), path);
  EXPECT_EQ(with_home("~you/a"), std::nullopt);
  unsetenv("HOME");
  EXPECT_EQ(with_home("~/a"), std::nullopt);
  EXPECT_EQ(with_home("a"), "a");
}

}  // namespace
}  // namespace ripstop
