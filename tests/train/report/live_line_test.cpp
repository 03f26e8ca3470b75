#include "train/report/live_line.h"
#include "tests/expect_has.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "tests/train/report/pseudo_terminal.h"

namespace ripstop {
namespace {

class LiveLineTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PseudoTerminal::is_possible()) GTEST_SKIP() << PseudoTerminal::kAbsent;
  }

  ScopedVariable told_{"RIPSTOP_TERMINAL", nullptr}, rank_{"OMPI_COMM_WORLD_RANK", nullptr},
      process_{"PMIX_RANK", nullptr}, term_{"TERM", "xterm"};
  PseudoTerminal terminal_{20};
};

TEST_F(LiveLineTest, IsRewrittenInPlaceAndCutToTheWidth) {
  LiveLine line(terminal_.stream());
  EXPECT_TRUE(line.is_live());
  EXPECT_TRUE(line.is_due());
  line.show("step 1/40  loss 2.5");
  EXPECT_FALSE(line.is_due());
  // The line has 19 columns: 20 would move the cursor to the next line.
  line.show("step 2/40  loss 2.25  eta 3s");
  EXPECT_EQ(terminal_.read_printed(), "\r\x1b[Kstep 1/40  loss 2.5\r\x1b[Kstep 2/40  loss 2.2");
}

TEST_F(LiveLineTest, OtherLinesGoAboveIt) {
  LiveLine line(terminal_.stream());
  line.print("begins at step 0");
  line.show("step 1");
  line.print("note: a line of more than 20 columns");
  line.clear();
  line.clear();
  line.print("done");
  EXPECT_EQ(terminal_.read_printed(),
            "begins at step 0\n\r\x1b[Kstep 1"
            "\r\x1b[Knote: a line of more than 20 columns\nstep 1"
            "\r\x1b[Kdone\n");
}

// Later output, such as an error, must begin on a clear line.
TEST_F(LiveLineTest, IsClearedAtItsEnd) {
  LiveLine(terminal_.stream()).show("step 1");
  EXPECT_EQ(terminal_.read_printed(), "\r\x1b[Kstep 1\r\x1b[K");
  try {
    Progress progress(terminal_.stream());
    // The first line appears late enough for a rate.
    while (terminal_.read_printed().empty()) progress.update("load", "byte", 5, 10);
    throw std::runtime_error("damaged");
  } catch (const std::exception&) {
    EXPECT_EQ(terminal_.read_printed(), "\r\x1b[K");
  }
}

TEST_F(LiveLineTest, LogsGetWholeLinesAndNoLiveOne) {
  std::FILE* const log = std::tmpfile();
  {
    LiveLine line(log);
    EXPECT_FALSE(line.is_live());
    EXPECT_FALSE(line.is_due());
    line.show("step 1");
    line.print("a line that is longer than any terminal would be " + std::string(200, '-') + "  end");
  }
  std::rewind(log);
  char text[400] = "";
  const size_t length = std::fread(text, 1, sizeof text, log);
  std::fclose(log);
  EXPECT_EQ(std::string(text, length),
            "a line that is longer than any terminal would be " + std::string(200, '-') + "  end\n");
}

// A run goes on after its terminal was closed.
TEST_F(LiveLineTest, AWriteThatFailsIsNoError) {
  std::FILE* const full = std::fopen("/dev/full", "w");
  {
    LiveLine line(full);
    EXPECT_NO_THROW(line.print("a line"));
  }
  EXPECT_EQ(std::ferror(full), 0) << "main() would take it for a failed result";
  std::fclose(full);
}

// Without the wait in memory, the first line that finds the pipe full stops the run.
TEST_F(LiveLineTest, LinesWaitForAReaderThatDoesNotRead) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  std::FILE* const stream = fdopen(ends[1], "w");
  std::string expected, got;
  LiveLine line(stream);
  for (int i = 0; i < 2000; ++i) {  // more than three pipes full
    const std::string text = fmt::format("step {} {}", i, std::string(100, '-'));
    line.print(text);
    expected += text + "\n";
  }
  std::array<char, 1 << 12> bytes;
  while (got.size() < expected.size()) {
    const ssize_t count = read(ends[0], bytes.data(), bytes.size());
    ASSERT_GT(count, 0);
    got.append(bytes.data(), static_cast<size_t>(count));
    line.print("next");
  }
  EXPECT_EQ(got.substr(0, expected.size()), expected);
  close(ends[0]);
}

TEST_F(LiveLineTest, ProgressShowsALiveLineAndLeavesOne) {
  const PseudoTerminal terminal(60);
  Progress progress(terminal.stream());
  std::string printed;
  while (printed.empty()) {
    progress.update("verify", "byte", 1024, 4096);
    printed = terminal.read_printed();
  }
  progress.update("verify", "byte", 4096, 4096);
  progress.update("load", "unit", 0, 3);
  progress.finish();
  progress.finish();
  printed += terminal.read_printed();
  EXPECT_EQ(printed.rfind("\r\x1b[Kverify  1.0 KiB/4.0 KiB  25.0%  ", 0), 0u) << printed;
  EXPECT_HAS(printed, "\r\x1b[Kverify  4.0 KiB in");
  EXPECT_TRUE(printed.ends_with("\nload  0 units in 0s\n")) << printed;
}

TEST(Progress, LineShowsRateShareAndTimeLeft) {
  EXPECT_EQ(progress_line("prepare", "document", 12000, 204000, 3.75),
            "prepare  12000/204000 documents  5.9%  3200/s  eta 1m00s");
  EXPECT_EQ(progress_line("prepare", "document", 12000, 0, 3.75), "prepare  12000 documents  3200/s");
  EXPECT_EQ(progress_line("prepare", "document", 0, 10, 1), "prepare  0/10 documents  0.0%  0/s  eta ?");
  EXPECT_EQ(progress_line("summarize", "document", 1, 0, 0.5), "summarize  1 document  2/s");
  EXPECT_EQ(progress_line("encoding", "byte", 845 << 10, 1690 << 10, 2),
            "encoding  845.0 KiB/1.7 MiB  50.0%  422.5 KiB/s  eta 2s");
}

}  // namespace
}  // namespace ripstop
