#include "train/report/progress.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

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
