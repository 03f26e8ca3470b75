#include "train/report/screen_text.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(ScreenText, LettersAreCountedAndNotBytes) {
  EXPECT_EQ(screen_columns(""), 0);
  EXPECT_EQ(screen_columns("na\u00efve"), 5);
  EXPECT_EQ(screen_columns("\u8a00\u8449"), 4);  // two columns each
  EXPECT_EQ(screen_columns("a\xff\xc3"), 3);     // no UTF-8
  EXPECT_EQ(screen_columns("\U0001F600"), 2);
}

TEST(ScreenText, ACutKeepsLettersWhole) {
  EXPECT_EQ(cut_to_width("step 12/40", 0), "step 12/40");
  EXPECT_EQ(cut_to_width("step 12/40", 10), "step 12/40");
  EXPECT_EQ(cut_to_width("step 12/40", 7), "step 12");
  EXPECT_EQ(cut_to_width("na\u00efve", 3), "na\u00ef");
  EXPECT_EQ(cut_to_width("\u8a00\u8449", 3), "\u8a00");
}

// The name of a file may hold an escape sequence, in UTF-8 or as one byte of it.
TEST(ScreenText, NoControlCharacterReachesTheTerminal) {
  EXPECT_EQ(cut_to_width("a\x1b[2Jb\rc\nd\x7f", 0), "a [2Jb c d ");
  EXPECT_EQ(cut_to_width("a\u009b2J", 0), "a  2J");
  EXPECT_EQ(wrap_to_width("a\x1b[2J\nb", 0, 0), "a [2J\nb");
}

TEST(ScreenText, LongLinesBreakAtSpaces) {
  EXPECT_EQ(wrap_to_width("give another run.directory for a new run", 20, 2),
            "give another\n  run.directory for\n  a new run");
  EXPECT_EQ(wrap_to_width("exactly ten", 11, 2), "exactly ten");
  EXPECT_EQ(wrap_to_width("short", 0, 2), "short");
  EXPECT_EQ(wrap_to_width("", 10, 2), "");
  // A path stays whole, so that it can be copied.
  EXPECT_EQ(wrap_to_width("see /a/very/long/path/of/a/run now", 12, 1),
            "see\n /a/very/long/path/of/a/run\n now");
  // Line ends stay, and what follows is indented.
  EXPECT_EQ(wrap_to_width("one\ntwo three", 9, 2), "one\n  two\n  three");
}

TEST(ScreenText, ColumnsStayWhole) {
  EXPECT_EQ(wrap_to_width("validation at step 20  loss 2.31  perplexity 10.1", 30, 2),
            "validation at step 20\n  loss 2.31  perplexity 10.1");
  EXPECT_EQ(wrap_to_width("  lr 1 a  b c", 10, 4), "  lr 1 a\n    b c");
}

}  // namespace
}  // namespace ripstop
