#include "parallel/arrivals.h"
#include "tests/expect_has.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace ripstop {
namespace {

namespace fs = std::filesystem;

ArrivalsSeen seen_of(const std::vector<ArrivalsSeen::Rank>& ranks) {
  return {.folder = "runs", .ranks = ranks};
}

TEST(MissingAtStart, NamesRanksThatHaveNotCome) {
  EXPECT_EQ(missing_at_start(seen_of({{0, "n1"}, {2, "n2"}}), 3, {}),
            "rank 1 of 3 has not come; seen: rank 0 (n1), rank 2 (n2)");
  EXPECT_EQ(missing_at_start(seen_of({{0, "n1"}, {1, "n1"}}), 6, {}),
            "ranks 2-5 of 6 have not come; seen: ranks 0-1 (n1)");
}

TEST(MissingAtStart, NamesTheNodesThatNobodyHasComeFrom) {
  EXPECT_EQ(missing_at_start(seen_of({{0, "n1.cluster"}, {1, "n1.cluster"}}), 4, {"n1", "n2"}),
            "ranks 2-3 of 4 have not come, and nobody from n2; seen: ranks 0-1 (n1.cluster)");
  // Hosts whose own names differ from Slurm's cannot be compared with Slurm's list.
  EXPECT_EQ(missing_at_start(seen_of({{0, "alpha"}}), 2, {"n1", "n2"}),
            "rank 1 of 2 has not come; seen: rank 0 (alpha)");
}

TEST(MissingAtStart, NamesRanksThatStandStill) {
  EXPECT_EQ(missing_at_start(seen_of({{0, "n1"}, {1, "n2", false}}), 2, {}),
            "rank 1 (n2) came and stands still; seen: rank 0 (n1), rank 1 (n2)");
  EXPECT_EQ(missing_at_start(seen_of({{0, "n1"}, {1, "n2", false}}), 3, {}),
            "rank 2 of 3 has not come; rank 1 (n2) came and stands still; seen: rank 0 (n1), rank 1 (n2)");
  EXPECT_EQ(missing_at_start(seen_of({{0, "n1"}, {1, "n2"}}), 2, {}),
            "all 2 ranks have come and run, but MPI does not go on");
}

TEST(MissingAtStart, AThousandRanksStayOneShortLine) {
  std::vector<ArrivalsSeen::Rank> ranks;
  for (int64_t r = 0; r < 1024; ++r)
    if (r / 8 != 77) ranks.push_back({r, "node" + std::to_string(r / 8)});
  const std::string text = missing_at_start(seen_of(ranks), 1024, {});
  EXPECT_EQ(text.find("ranks 616-623 of 1024 have not come"), 0U) << text;
  EXPECT_HAS(text, "and 952 more");
  EXPECT_LT(text.size(), 400U);
}

// The time between two touches: long, so that a thread of a busy machine does not seem to stand still.
constexpr double kSeconds = 5;

class ArrivalFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ripstop_arrivals_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  // The files appear on a thread.
  static ArrivalsSeen look_for(const Arrivals& arrivals, size_t ranks) {
    ArrivalsSeen seen = arrivals.look();
    for (int i = 0; i < 6000 && seen.ranks.size() != ranks; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      seen = arrivals.look();
    }
    return seen;
  }
  fs::path folder_;
};

TEST_F(ArrivalFiles, RanksSeeEachOtherAndLeaveNothing) {
  Arrivals first(folder_ / "runs/new", "job.1", 0, "n1", kSeconds);
  {
    const Arrivals second(folder_ / "runs/new", "job.1", 11, "n2", kSeconds);
    const ArrivalsSeen seen = look_for(first, 2);
    ASSERT_EQ(seen.ranks.size(), 2U);
    EXPECT_EQ(seen.folder, folder_ / ".ripstop-start.job.1") << "the nearest folder that is there";
    EXPECT_EQ(seen.ranks[1].rank, 11);
    EXPECT_EQ(seen.ranks[1].host, "n2");
    EXPECT_TRUE(seen.ranks[0].moves && seen.ranks[1].moves);
    // Files of another launch beside it are not seen.
    const Arrivals other(folder_ / "runs/new", "job.2", 1, "n3", kSeconds);
    EXPECT_EQ(look_for(other, 1).ranks.size(), 1U);
  }
  EXPECT_EQ(look_for(first, 1).ranks.size(), 1U);
  first.leave();
  EXPECT_TRUE(fs::is_empty(folder_));
}

// Where all may write, another user can guess the names, and put links there before the start.
TEST_F(ArrivalFiles, FollowNoLinks) {
  const fs::path target = folder_ / "victim/file", files = folder_ / ".ripstop-start.job";
  fs::create_directories(folder_ / "victim");
  fs::create_directories(files);
  fs::create_symlink(target, files / "0@n1");
  Arrivals(folder_, "job", 0, "n1", kSeconds).leave();
  EXPECT_FALSE(fs::exists(target)) << "through a link in the place of the file";
  fs::remove_all(files);
  fs::create_directory_symlink(folder_ / "victim", files);
  Arrivals second(folder_, "job", 0, "n1", kSeconds);
  second.leave();
  second.remove_all();
  EXPECT_TRUE(fs::is_empty(folder_ / "victim")) << "through a link in the place of the folder";
}

TEST_F(ArrivalFiles, LeaveTheFolderOfAnotherUserAlone) {
  const fs::path files = folder_ / ".ripstop-start.job";
  fs::create_directories(files);
  if (chown(files.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "no right to give a folder away";
  Arrivals arrivals(folder_, "job", 0, "n1", kSeconds);
  arrivals.leave();
  arrivals.remove_all();
  EXPECT_TRUE(fs::is_empty(files));
}

// A stopped process no longer touches its file.
TEST_F(ArrivalFiles, AFileThatNobodyTouchesStandsStill) {
  Arrivals first(folder_, "job", 0, "n1", kSeconds);
  ASSERT_EQ(look_for(first, 1).ranks.size(), 1U);
  const fs::path file = folder_ / ".ripstop-start.job/1@n2";
  std::ofstream(file).put('x');
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(5));
  const ArrivalsSeen seen = first.look();
  ASSERT_EQ(seen.ranks.size(), 2U);
  EXPECT_TRUE(seen.ranks[0].moves);
  EXPECT_FALSE(seen.ranks[1].moves);
}

TEST_F(ArrivalFiles, OldFoldersOfKilledStartsAreRemoved) {
  const fs::path old = folder_ / ".ripstop-start.killed", young = folder_ / ".ripstop-start.running";
  for (const fs::path& each : {old, young, folder_ / "other"}) {
    fs::create_directories(each);
    std::ofstream(each / "0@n1").put('x');
  }
  for (const fs::path& each : {old, folder_ / "other"})
    fs::last_write_time(each, fs::file_time_type::clock::now() - std::chrono::hours(25));
  Arrivals own(folder_, "job", 0, "n1", kSeconds);
  ASSERT_EQ(look_for(own, 1).ranks.size(), 1U);
  own.leave();
  own.remove_all();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young)) << "another launch, under way";
  EXPECT_TRUE(fs::exists(folder_ / "other/0@n1"));
}

TEST_F(ArrivalFiles, AFolderThatCannotBeWrittenHoldsNobodyUp) {
  // Nobody can make a folder there, not even root.
  Arrivals own("/proc", "job", 0, "n1", kSeconds);
  EXPECT_TRUE(own.look().ranks.empty());
  own.leave();
  own.remove_all();
}

}  // namespace
}  // namespace ripstop
