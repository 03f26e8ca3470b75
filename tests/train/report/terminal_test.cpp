#include "train/report/terminal.h"

#include <gtest/gtest.h>

#include "tests/train/report/pseudo_terminal.h"

namespace ripstop {
namespace {

class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PseudoTerminal::is_possible()) GTEST_SKIP() << PseudoTerminal::kAbsent;
  }

  // The test may run under a launcher, or without a terminal.
  ScopedVariable told_{"RIPSTOP_TERMINAL", nullptr}, rank_{"OMPI_COMM_WORLD_RANK", nullptr},
      process_{"PMIX_RANK", nullptr}, term_{"TERM", "xterm"}, no_color_{"NO_COLOR", nullptr},
      columns_{"COLUMNS", "47"};
  PseudoTerminal pseudo_{61};
};

TEST_F(TerminalTest, ATerminalHasTheWidthOfItsWindow) {
  const Terminal terminal = terminal_of(pseudo_.stream());
  EXPECT_TRUE(terminal.is_terminal);
  EXPECT_TRUE(terminal.rewrites);
  EXPECT_TRUE(terminal.colors);
  EXPECT_EQ(terminal.width, 61);
}

TEST_F(TerminalTest, AFileIsNone) {
  std::FILE* const file = std::tmpfile();
  const Terminal terminal = terminal_of(file);
  EXPECT_FALSE(terminal.is_terminal);
  EXPECT_FALSE(terminal.rewrites);
  EXPECT_EQ(terminal.width, 0);
  std::fclose(file);
}

TEST_F(TerminalTest, DumbTerminalsAndPeopleWithoutColorAreHeard) {
  {
    const ScopedVariable no_color("NO_COLOR", "1");
    EXPECT_TRUE(terminal_of(pseudo_.stream()).rewrites);
    EXPECT_FALSE(terminal_of(pseudo_.stream()).colors);
  }
  const ScopedVariable dumb("TERM", "dumb");
  EXPECT_TRUE(terminal_of(pseudo_.stream()).is_terminal);
  EXPECT_FALSE(terminal_of(pseudo_.stream()).rewrites);
  EXPECT_FALSE(terminal_of(pseudo_.stream()).colors);
}

// mpirun makes pseudo-terminals for its ranks even if its own output goes to a log.
TEST_F(TerminalTest, UnderALauncherOnlyItsWordCounts) {
  const ScopedVariable rank("OMPI_COMM_WORLD_RANK", "0");
  EXPECT_FALSE(terminal_of(pseudo_.stream()).is_terminal);
  const ScopedVariable none("RIPSTOP_TERMINAL", "");
  EXPECT_FALSE(terminal_of(pseudo_.stream()).is_terminal);
}

// Here the stream of a rank is a pipe, so the width comes from $COLUMNS.
TEST_F(TerminalTest, TheLauncherTellsWhichStreamsEndAtATerminal) {
  const ScopedVariable told("RIPSTOP_TERMINAL", "02");
  EXPECT_FALSE(terminal_of(stdout).is_terminal);
  const Terminal error = terminal_of(stderr);
  EXPECT_TRUE(error.is_terminal);
  if (isatty(fileno(stderr)) == 0) {
    EXPECT_EQ(error.width, 47);
  }
}

TEST(TerminalText, ACutKeepsLettersWhole) {
  EXPECT_EQ(cut_to_width("step 12/40", 0), "step 12/40");
  EXPECT_EQ(cut_to_width("step 12/40", 10), "step 12/40");
  EXPECT_EQ(cut_to_width("step 12/40", 7), "step 12");
  EXPECT_EQ(cut_to_width("na\u00efve", 3), "na\u00ef");
  EXPECT_EQ(cut_to_width("\u8a00\u8449", 3), "\u8a00");  // two columns each
}

// A file name may have an escape sequence, or a byte of one that is no UTF-8.
TEST(TerminalText, NoControlCharacterReachesTheTerminal) {
  EXPECT_EQ(cut_to_width("a\x1b[2Jb\rc\nd\x7f", 0), "a\\x1b[2Jb\\rc d\\x7f");
  EXPECT_EQ(cut_to_width("a\u009b2J", 0), "a\\u009b2J");
  EXPECT_EQ(visible_text("a\x1b[2J\nb"), "a\\x1b[2J\nb");
}

TEST(VisibleText, NothingInATextCommandsTheTerminal) {
  EXPECT_EQ(visible_text("na\u00efve\n\u6771\u4eac \U0001F388"), "na\u00efve\n\u6771\u4eac \U0001F388");
  EXPECT_EQ(visible_text("a\x1b[2Jb\rc\td\x7f"), "a\\x1b[2Jb\\rc\\td\\x7f");
  EXPECT_EQ(visible_text("a\u009b2J \u2028 \u202e \u2066"), "a\\u009b2J \\u2028 \\u202e \\u2066");
  EXPECT_EQ(visible_text("a\xe6\x9d!\xff"), "a<0xE6><0x9D>!<0xFF>");
  EXPECT_EQ(visible_text(""), "");
}

}  // namespace
}  // namespace ripstop
