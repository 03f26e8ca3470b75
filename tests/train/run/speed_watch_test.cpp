#include "train/run/speed_watch.h"
#include "tests/expect_has.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "train/run/run_report.h"

namespace ripstop {
namespace {

std::vector<RankWork> even(size_t ranks, double seconds = 0.5, double flops = 1e12) {
  std::vector<RankWork> window(ranks);
  for (size_t r = 0; r < ranks; ++r) window[r] = {static_cast<double>(r), seconds, 0.1, flops};
  return window;
}

TEST(RelativeSpeeds, HalfTheSpeedIsSlowInAnyNumberOfRanks) {
  for (size_t ranks = 2; ranks <= 9; ++ranks) {
    std::vector<RankWork> window = even(ranks);
    window[ranks - 1].compute_seconds *= 2;
    const std::vector<double> speeds = relative_speeds(window);
    EXPECT_LT(speeds[ranks - 1], 0.7) << ranks;
    for (size_t r = 0; r + 1 < ranks; ++r) EXPECT_GE(speeds[r], 1.0) << ranks;
  }
}

TEST(RelativeSpeeds, HalfOfTheNodesCanBeTheSlowOnes) {
  std::vector<RankWork> window = even(8);
  for (size_t r = 4; r < 8; ++r) window[r].compute_seconds *= 2;
  const std::vector<double> speeds = relative_speeds(window);
  for (size_t r = 0; r < 8; ++r) EXPECT_EQ(speeds[r] < 0.8, r >= 4) << r;
}

TEST(RelativeSpeeds, UnequalWorkIsNoSlowness) {
  // One rank has twice the work and takes twice the time.
  std::vector<RankWork> longer = even(4);
  longer[2].compute_seconds *= 2;
  longer[2].flops *= 2;
  for (const double speed : relative_speeds(longer)) EXPECT_GE(speed, 1.0);
  // Most ranks have half the FLOP (rows without a document), but are not twice as fast.
  std::vector<RankWork> empty = even(4);
  for (size_t r = 1; r < 4; ++r) empty[r] = {static_cast<double>(r), 0.45, 0.1, 5e11};
  for (const double speed : relative_speeds(empty)) EXPECT_GE(speed, 0.8);
  // A rank that computed nothing has speed 1.
  empty[3] = {3, 0, 0.5, 0};
  EXPECT_EQ(relative_speeds(empty)[3], 1.0);
}

TEST(RelativeSpeeds, AWaitForTheOwnSaveDoesNotCount) {
  std::vector<RankWork> window;
  for (int64_t rank = 0; rank < 4; ++rank) {
    // Rank 1 saves for a second, in which the others wait for it.
    const StepTimes times =
        rank == 1 ? StepTimes{.seconds = 2, .in_collectives_seconds = 0.5, .for_save_seconds = 1}
                  : StepTimes{.seconds = 2, .in_collectives_seconds = 1.5};
    window.push_back(work_of_step(rank, times, {.own = 1e12, .all = 1e12}));
    EXPECT_EQ(window.back().rank, rank);
    EXPECT_EQ(window.back().compute_seconds, 0.5);
  }
  EXPECT_EQ(window[1].wait_seconds, 0.5);
  EXPECT_EQ(window[2].wait_seconds, 1.5);
  for (const double speed : relative_speeds(window)) EXPECT_EQ(speed, 1.0);
  EXPECT_EQ(work_of_step(0, {.seconds = 1, .in_collectives_seconds = 2}, {}).compute_seconds, 0);
}

// Three stages with as much work, and a last one with a tenth of it.
std::vector<RankWork> stages() {
  std::vector<RankWork> window;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const double share = rank < 3 ? 0.3 : 0.1;
    window.push_back(work_of_step(rank, {.seconds = 2, .in_collectives_seconds = 2 - share},
                                  {.own = share * 1e12, .all = 1e12}));
  }
  return window;
}

TEST(RelativeSpeeds, ALightStageIsNoFastRank) {
  for (const double speed : relative_speeds(stages())) EXPECT_NEAR(speed, 1, 1e-9);
}

TEST(RelativeSpeeds, ASlowStageIsSlowWhateverItsShare) {
  for (size_t slow = 0; slow < 4; ++slow) {
    std::vector<RankWork> window = stages();
    window[slow].compute_seconds *= 2;
    const std::vector<double> speeds = relative_speeds(window);
    for (size_t r = 0; r < 4; ++r) EXPECT_NEAR(speeds[r], r == slow ? 0.5 : 1, 1e-9) << slow;
  }
}

// One data rank of two has no sequence in its last micro-batches: its stages have less to compute, but rows
// without a document take nearly as long.
TEST(RelativeSpeeds, AnEmptyDataRankOfAPipelineIsNotSlow) {
  std::vector<RankWork> window = stages();
  for (RankWork each : stages()) {
    each.flops /= 2;
    each.compute_seconds *= 0.9;
    window.push_back(each);
  }
  for (const double speed : relative_speeds(window)) EXPECT_GT(speed, 0.9);
}

TEST(RelativeSpeeds, WaitsDoNotCount) {
  std::vector<RankWork> window = even(4);
  window[1].wait_seconds = 100;
  for (const double speed : relative_speeds(window)) EXPECT_EQ(speed, 1.0);
}

// In 1,000 windows with a deviation of 6 % and rare stumbles no rank becomes slow.
TEST(SlowWindows, NoFalseAlarmInAThousandNoisyWindows) {
  std::mt19937 random(11);
  for (const size_t ranks : {2U, 4U, 8U, 64U, 1000U}) {
    std::normal_distribution<double> noise(1.0, 0.06);
    SlowWindows windows;
    for (int i = 0; i < 1000; ++i) {
      std::vector<RankWork> window = even(ranks);
      for (RankWork& rank : window) {
        rank.compute_seconds *= std::max(0.8, noise(random));
        if (random() % 300 == 0) rank.compute_seconds *= 3;  // a stumble
      }
      windows.add(relative_speeds(window));
      ASSERT_EQ(std::count(windows.slow().begin(), windows.slow().end(), true), 0) << ranks << ", " << i;
    }
  }
}

// With noise, a rank at half speed becomes slow after three windows, and normal three windows after it has
// recovered.
TEST(SlowWindows, ASlowRankIsNamedAndForgotten) {
  std::mt19937 random(12);
  std::normal_distribution<double> noise(1.0, 0.06);
  for (int run = 0; run < 300; ++run) {
    const size_t ranks = 2 + random() % 30, slow = random() % ranks;
    SlowWindows windows;
    const auto add = [&](double times) {
      std::vector<RankWork> window = even(ranks);
      for (RankWork& rank : window) rank.compute_seconds *= std::clamp(noise(random), 0.85, 1.15);
      window[slow].compute_seconds *= times;
      windows.add(relative_speeds(window));
    };
    for (int i = 0; i < 4; ++i) add(1);
    for (int i = 0; i < 2; ++i) add(2);
    EXPECT_FALSE(windows.slow()[slow]) << "not before the third";
    add(2);
    for (size_t r = 0; r < ranks; ++r) EXPECT_EQ(windows.slow()[r], r == slow) << run;
    for (int i = 0; i < 2; ++i) add(1);
    EXPECT_TRUE(windows.slow()[slow]);
    add(1);
    EXPECT_FALSE(windows.slow()[slow]);
  }
}

TEST(BatchFlops, CountsRowsDocumentsAndTargets) {
  ModelConfig model;
  model.hidden_size = 8;
  model.intermediate_size = 16;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.vocab_size = 32;
  PackedBatch batch;
  batch.sequence_count = 1;
  batch.sequence_length = 10;
  batch.document_offset = {0, 6, 10};
  batch.target_count = 3;
  // wq and wo 8 x 8, wk and wv 4 x 8, w1, w2 and w3 16 x 8.
  const double weights = 2 * (2 * 64 + 2 * 32 + 3 * 128);
  const double layer = 3 * (10 * weights + 2 * 8 * (36 + 16)), head = 3 * 3 * 2 * 32 * 8;
  const auto of = [&](const Stage& stage) { return batch_flops(model, batch, {&stage, 1}); };
  EXPECT_EQ(of({.layers = 2}).own, 2 * layer + head);
  EXPECT_EQ(of({.layers = 1, .is_last = false}).own, layer);
  EXPECT_EQ(of({.number = 1, .first_layer = 1, .layers = 1, .is_first = false}).own, layer + head);
  EXPECT_EQ(of({.number = 1, .first_layer = 2, .layers = 0, .is_first = false}).own, head);
  EXPECT_EQ(of({.layers = 1, .is_last = false}).all, 2 * layer + head);
  const std::vector<Stage> two{{.layers = 1, .is_last = false},
                               {.number = 2, .first_layer = 2, .layers = 0, .is_first = false}};
  EXPECT_EQ(batch_flops(model, batch, two).own, layer + head);
}

SpeedWindow window_of(size_t ranks) {
  SpeedWindow window{.steps = 5,
                     .ranks = even(ranks),
                     .speeds = std::vector<double>(ranks, 1.0),
                     .slow = {},
                     .was_slow = {}};
  window.slow.assign(ranks, false);
  window.was_slow.assign(ranks, false);
  return window;
}

TEST(SpeedReport, AHostHasTheTimesOfItsSlowestRank) {
  SpeedWindow window = window_of(4);
  window.ranks[3].compute_seconds = 0.75;
  window.ranks[3].wait_seconds = 0.01;
  const HostsEvent event = hosts_event(window, {"n1", "n1", "n2", "n2"}, 30);
  EXPECT_EQ(event.hosts, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(event.compute_seconds, (std::vector<double>{0.5, 0.75}));
  EXPECT_EQ(event.wait_seconds, (std::vector<double>{0.1, 0.01}));
  EXPECT_EQ(event.step, 30);
  EXPECT_TRUE(event.slow.empty());
  EXPECT_EQ(event.exclude, "");
  EXPECT_TRUE(speed_changes(window, {"n1", "n1", "n2", "n2"}).empty());
}

TEST(SpeedReport, NamesRankAndHostAndTheOptionToPaste) {
  SpeedWindow window = window_of(4);
  window.slow[3] = window.slow[1] = window.was_slow[1] = true;
  window.speeds[1] = 0.7;
  window.speeds[3] = 0.5;
  window.ranks[3].rank = 7;  // the launcher's number
  const std::vector<std::string> hosts = {"n1.cluster", "n4.cluster", "n2", "n2"};
  const HostsEvent event = hosts_event(window, hosts, 30);
  ASSERT_EQ(event.slow.size(), 2U);
  EXPECT_EQ(event.slow[1].rank, 7);
  EXPECT_EQ(event.slow[1].host, "n2");
  EXPECT_EQ(event.exclude, "--exclude=n4,n2");
  const std::vector<std::string> texts = speed_changes(window, hosts);
  ASSERT_EQ(texts.size(), 1U) << "rank 1 was named before";
  EXPECT_EQ(texts[0].find("rank 7 (n2) is slow: it computes at 0.50 of the ranks' median speed"), 0U)
      << texts[0];
  EXPECT_HAS(texts[0], "--exclude=n4,n2");
  window.speeds[1] = 1.16;  // fast again, but not yet for three windows
  EXPECT_EQ(hosts_event(window, hosts, 30).slow.size(), 2U);
  EXPECT_EQ(hosts_event(window, hosts, 30).exclude, "--exclude=n2");
  window.slow[1] = false;
  EXPECT_EQ(speed_changes(window, hosts).at(0), "rank 1 (n4.cluster) is slow no more");
}

}  // namespace
}  // namespace ripstop
