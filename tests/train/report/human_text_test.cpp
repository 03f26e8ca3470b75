#include "train/report/human_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ripstop {
namespace {

TEST(HumanText, DurationsAndSizes) {
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(750), "12m30s");
  EXPECT_EQ(duration_text(3600 * 3 + 720), "3h12m");
  EXPECT_EQ(duration_text(86400 * 2 + 4 * 3600), "2d04h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::nan("")), "?");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(int64_t{64} << 30), "64.0 GiB");
  EXPECT_EQ(bytes_text(10737418), "10.2 MiB");
}

TEST(HumanText, CountsHaveThePlural) {
  EXPECT_EQ(counted(1, "document"), "1 document");
  EXPECT_EQ(counted(0, "document"), "0 documents");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(counted(2, "summary"), "2 summaries");
  EXPECT_EQ(counted(2, "day"), "2 days");
}

TEST(HumanText, AnAccountTellsWhatIsKnown) {
  RunAccount account{.node_hours = 1.5, .tokens = 744'000, .kwh = {}, .gpu_kwh = {}};
  EXPECT_EQ(account_text({}), "");
  EXPECT_EQ(account_text(account), "1.5 node-hours, energy not readable");
  account.gpu_kwh = 0.5;
  EXPECT_EQ(account_text(account), "1.5 node-hours, 0.5 kWh of GPUs");
  account.kwh = 0.62;
  EXPECT_EQ(account_text(account), "1.5 node-hours, 0.62 kWh (413.3 W a node, 1.2M tokens a kWh)");
}

TEST(HumanText, LittleHasNoExponents) {
  EXPECT_EQ(amount_text(0), "0");
  EXPECT_EQ(amount_text(5.18e-8), "<0.001");
  EXPECT_EQ(amount_text(0.0012), "0.0012");
  EXPECT_EQ(seconds_text(1.86e-5), "18.6 us");
  EXPECT_EQ(seconds_text(0.001), "0.001 s");
  EXPECT_EQ(seconds_text(12.345), "12.3 s");
  RunAccount account{.node_hours = 5.18e-8, .tokens = 100, .kwh = 1e-8, .gpu_kwh = {}};
  EXPECT_EQ(account_text(account), "<0.001 node-hours, <0.001 kWh (193.1 W a node, 10G tokens a kWh)");
}

TEST(HumanText, PerplexityIsShortHoweverLarge) {
  EXPECT_EQ(perplexity_text(0), "1.000");
  EXPECT_EQ(perplexity_text(std::log(23.1074)), "23.107");
  EXPECT_EQ(perplexity_text(std::log(999999.0)), "999999.000");
  EXPECT_EQ(perplexity_text(std::log(2.5e6)), "2.5e+06");
  EXPECT_EQ(perplexity_text(97.84), "3.1e+42");
  EXPECT_EQ(perplexity_text(300), "1.9e+130");
  EXPECT_EQ(perplexity_text(1000), "inf");
  EXPECT_EQ(perplexity_text(std::nan("")), "nan");
  EXPECT_EQ(perplexity_text(std::copysign(std::nan(""), -1)), "nan");
}

TEST(HumanText, PathsLoseTheFoldersThatAllShare) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(short_paths({"/data/sets/xsum/", "/data/sets/./chats"}), (Paths{"xsum", "chats"}));
  EXPECT_EQ(short_paths({"sets/xsum/made", "sets/chats/made"}), (Paths{"xsum/made", "chats/made"}));
  EXPECT_EQ(short_paths({"sets/a", "sets/a/b"}), (Paths{"a", "a/b"}));
  EXPECT_EQ(short_paths({"a/b/c"}), Paths{"c"});
  EXPECT_EQ(short_paths({"a/b/c"}, 2), Paths{"b/c"});
  EXPECT_EQ(short_paths({}), Paths{});
}

}  // namespace
}  // namespace ripstop
