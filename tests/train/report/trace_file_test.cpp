// Recorded ranges, the file of a rank, and ranks merged on one clock.
#include "train/report/trace_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>

#include "tests/data/scratch_directory.h"
#include "tests/expect_has.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;
using Range = RangeRecorder::Range;

const Range* find_range(const RangeRecorder& recorder, const std::string& name) {
  const auto found = std::ranges::find(recorder.ranges(), name, &Range::name);
  return found == recorder.ranges().end() ? nullptr : &*found;
}

TEST(RangeRecorder, RecordsOnlyWhileItIsOn) {
  RangeRecorder recorder;
  const size_t save = recorder.begin("save", "save");
  recorder.open("early");
  recorder.close();
  recorder.end(recorder.begin("fsdp", "early"), 1);
  const RangeRecorder::Time before = RangeRecorder::now();
  recorder.start();
  {
    const RecordedRange outer(&recorder, "outer");
    const RecordedRange inner(&recorder, "inner");
    const RecordedRange nothing(nullptr, "nothing");
  }
  recorder.end(save);
  recorder.open("open");
  const size_t late = recorder.begin("save", "late");
  recorder.stop();
  recorder.end(late);
  recorder.open("after");
  recorder.close();
  ASSERT_EQ(recorder.ranges().size(), 5U);
  const Range &outer = *find_range(recorder, "outer"), &inner = *find_range(recorder, "inner");
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_GE(find_range(recorder, "save")->begin_ns, RangeRecorder::nanoseconds(before));
  EXPECT_LE(find_range(recorder, "save")->begin_ns, outer.begin_ns) << "cut to what was recorded";
  EXPECT_NE(find_range(recorder, "open"), nullptr);
  EXPECT_NE(find_range(recorder, "late (goes on)"), nullptr);
}

TEST(RangeRecorder, RangesBesideEachOtherHaveTracksOfTheirOwn) {
  RangeRecorder recorder;
  recorder.start();
  const size_t a = recorder.begin("fsdp", "a"), b = recorder.begin("fsdp", "b");
  const size_t c = recorder.begin("tensor", "c");
  recorder.end(a, 8);
  const size_t d = recorder.begin("fsdp", "d");
  for (const size_t each : {d, b, c}) recorder.end(each, 9);
  EXPECT_EQ(recorder.tracks(), (std::vector<std::string>{"steps", "fsdp", "fsdp 2", "tensor"}));
  std::string found;
  for (const Range& range : recorder.ranges())
    found += fmt::format("{}{}:{} ", range.name, range.track, range.bytes);
  EXPECT_EQ(found, "a1:8 d1:9 b2:9 c3:9 ");
}

TEST(RangeRecorder, CountsRangesBeyondItsBoundAndKeepsOuterOnes) {
  RangeRecorder recorder(3);
  recorder.start();
  recorder.open("step");
  for (int i = 0; i < 5; ++i) {
    recorder.open("layer");
    recorder.close();
  }
  recorder.end(recorder.begin("fsdp", "x"));
  recorder.stop();
  EXPECT_EQ(recorder.ranges().size(), 3U);
  EXPECT_EQ(recorder.dropped(), 4);
  EXPECT_NE(find_range(recorder, "step"), nullptr);
}

/// The clock of a node: true time, an offset, a drift.
struct TestClock {
  int64_t offset_ns = 0;
  double drift = 0;
  int64_t at(int64_t true_ns) const {
    return true_ns + offset_ns + std::llround(drift * static_cast<double>(true_ns));
  }
};

// Four ranks on nodes 0 and 2 enter each barrier at times of their own, and leave it when all have come.
std::vector<BarrierTimes> barriers(const std::array<TestClock, 2>& clocks, int64_t begin_ns) {
  std::vector<BarrierTimes> ranks(4);
  for (int64_t rank = 0; rank < 4; ++rank) {
    BarrierTimes& times = ranks[static_cast<size_t>(rank)];
    const TestClock& clock = clocks.at(static_cast<size_t>(rank / 2));
    times.node = rank / 2 * 2;
    for (int64_t i = 0; i < std::ssize(times.entered); ++i) {
      const int64_t at = begin_ns + i * 1'000'000;
      times.entered[static_cast<size_t>(i)] = clock.at(at + (rank * 7 + i * 3) % 5 * 10'000);
      times.left[static_cast<size_t>(i)] = clock.at(at + 41'000 + (rank * 5 + i) % 3 * 15'000);
    }
  }
  return ranks;
}

// The stated error holds in the whole trace, also where clocks drift, and is below half a barrier's time.
TEST(NodeClock, ComparesNodesByBarriers) {
  const std::array<TestClock, 2> clocks{TestClock{5'000'000'000'000, 1e-5}, {90'000'000'000, -2e-5}};
  const int64_t end = 30'000'000'000;
  const auto before = barriers(clocks, 1'000'000'000), after = barriers(clocks, end);
  const NodeClock first(before, after, 0), other(before, after, 2);
  EXPECT_EQ(first.error_us(), 0);
  EXPECT_EQ(first.of_rank_0(12345), 12345) << "one node has one clock";
  EXPECT_GT(other.error_us(), 0);
  EXPECT_LT(other.error_us(), 21);
  for (int64_t at = 1'000'000'000; at <= end; at += 1'000'000'000)
    EXPECT_NEAR(1e-3 * static_cast<double>(other.of_rank_0(clocks[1].at(at)) - clocks[0].at(at)), 0,
                other.error_us() + 0.01)
        << at;
}

/// Files of four ranks.
class TraceFiles : public testing::Test {
 protected:
  void SetUp() override {
    remove_traces(io_, folder());
    for (int64_t rank = 0; rank < 4; ++rank) write(rank, 77);
  }
  void write(int64_t rank, int64_t started_ns) const {
    RangeRecorder recorder;
    recorder.start();
    recorder.open("step 10");
    recorder.open("wait for data");
    recorder.close();
    recorder.end(recorder.begin("fsdp", "fsdp all_gather"), 4096);
    recorder.end(recorder.begin("save", "save of step 9"));
    recorder.stop();
    TraceFacts facts{.rank = rank, .ranks = 4, .process = fmt::format("rank {} (a\"b)", rank)};
    facts.started_ns = started_ns;
    facts.clock_error_us = static_cast<double>(rank);
    const std::vector<BarrierTimes> one(1);
    write_trace(io_, folder(), facts, recorder, NodeClock(one, one, 0));
  }
  std::filesystem::path folder() const { return scratch_ / "trace"; }
  std::filesystem::path file(int64_t rank) const { return folder() / trace_file_name(rank); }
  Json merged_json() const { return Json::parse(read_bytes(scratch_ / "merged.json")); }
  MergedTraces merge() const { return merge_traces(io_, folder(), scratch_ / "merged.json"); }

  ScratchDirectory scratch_;
  Io& io_ = posix_io();
};

TEST_F(TraceFiles, AreMergedInTheOrderOfRanks) {
  const MergedTraces merged = merge();
  EXPECT_EQ(merged.ranks, 4);
  EXPECT_TRUE(merged.problems.empty());
  EXPECT_EQ(merged.facts.clock_error_us, 3);
  const Json json = merged_json(), one = Json::parse(read_bytes(file(3)));
  EXPECT_EQ(json["traceEvents"].size(), 4 * one["traceEvents"].size());
  EXPECT_EQ(one["traceEvents"][0]["args"]["name"], "rank 3 (a\"b)");
  std::string found;
  for (const Json& event : one["traceEvents"])
    if (event["ph"] == "X")
      found += event["cat"].get<std::string>() + " " + event["name"].get<std::string>() + ", ";
  EXPECT_EQ(found, "range step 10, wait wait for data, collective fsdp all_gather, save save of step 9, ");
  for (const Json& event : one["traceEvents"]) {
    if (event.value("cat", "") != "collective") continue;
    EXPECT_EQ(event["args"], (Json{{"axis", "fsdp"}, {"operation", "all_gather"}, {"bytes", 4096}}));
  }
  EXPECT_EQ(json["traceEvents"].back(), one["traceEvents"].back());
}

TEST_F(TraceFiles, MissingAndDamagedOnesAreLeftOutAndNamed) {
  const std::string whole = read_bytes(file(1));
  std::filesystem::remove(file(0));
  write(2, 5);
  const std::vector<std::pair<std::string, std::string>> damages{
      {R"("format_version":1)", R"("format_version":2)"},
      {R"("rank":1)", R"("rank":3)"},
      {R"("ph":"X","ts":)", R"("ph":"X","ts":x)"},
      {R"(,"traceEvents")", R"(,"traceEvent")"},
      {"\n]}\n", "\n"},
      {whole, ""}};
  for (const auto& [from, to] : damages) {
    std::string text = whole;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    write_bytes(file(1), text.replace(text.find(from), from.size(), to));
    const MergedTraces merged = merge();
    EXPECT_EQ(merged.ranks, 1);
    ASSERT_EQ(merged.problems.size(), 3U) << from;
    EXPECT_HAS(merged.problems[0], "rank_00001.json: ");
    EXPECT_EQ(merged.problems[1], "rank_00000.json is missing");
    EXPECT_EQ(merged.problems[2], "rank_00002.json is of another trace");
    EXPECT_EQ(merged_json()["otherData"]["left_out"].size(), 3U);
  }
  remove_traces(io_, folder());
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
  EXPECT_THROW(merge(), Error);
}

}  // namespace
}  // namespace ripstop
