// Ranks wait for each other's disks, one of which is slow or does not answer.
#include "train/checkpoint/disk_votes.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/data/hanging_io.h"
#include "tests/expect_has.h"
#include "tests/train/checkpoint/checkpoint_model.h"

namespace ripstop {
namespace {

using std::chrono::milliseconds;

constexpr DiskPatience kHalfASecond{.seconds = 0.5, .hosts = {}};

/// Two ranks vote until both are done. Rank 1 is done after `votes` votes, and tells `progress` of the number
/// of each vote. Returns the error of each rank.
std::vector<std::optional<Error>> wait_for_rank_1(int64_t votes, const DiskPatience& patience,
                                                  const std::function<int64_t(int64_t)>& progress) {
  return SimulatedRanks(2).run([&](Communicator& world) {
    DiskVotes disks(world, patience);
    for (int64_t vote = 0;; ++vote) {
      const bool done = world.rank() == 0 || vote >= votes;
      if (disks.all_done(done, progress(vote))) return;
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
}

// The whole write takes much longer than the patience with one part.
TEST(DiskVotes, ASlowDiskMoves) {
  const DiskPatience patience{.seconds = 2, .hosts = {}};
  for (const auto& error : wait_for_rank_1(500, patience, [](int64_t vote) { return vote / 4; }))
    EXPECT_FALSE(error) << error->what();
}

TEST(DiskVotes, ADiskThatDoesNothingIsNamed) {
  const DiskPatience patience{.seconds = 0.5, .hosts = {"n1", "n2"}};
  const auto errors =
      wait_for_rank_1(1'000'000, patience, [](int64_t vote) { return std::min<int64_t>(vote, 3); });
  int64_t named = 0;
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ExitCode::kCommunication);
    // The other rank may have thrown already: then a vote finds it gone.
    if (std::string(error->what()).starts_with("rank 1 (n2) wrote nothing for 0 s")) ++named;
  }
  EXPECT_GE(named, 1) << errors[0]->what() << errors[1]->what();
}

// Stillness before the votes counts, unless the disk has made progress since.
TEST(DiskVotes, TheyGoOnWhereOthersHaveCounted) {
  const DiskPatience patience{.seconds = 1000, .hosts = {"n1", "n2"}};
  const auto errors_of = [&](int64_t progress) {
    return SimulatedRanks(2).run([&](Communicator& world) {
      DiskVotes disks(world, patience);
      disks.count_from(world.rank() == 1 ? DiskStillness{.progress = 7, .seconds = 1000} : DiskStillness{});
      std::this_thread::sleep_for(milliseconds(20));
      EXPECT_FALSE(disks.all_done(world.rank() == 0, progress));
    });
  };
  for (const auto& error : errors_of(7)) {
    ASSERT_TRUE(error);
    EXPECT_HAS(std::string(error->what()), "rank 1 (n2) wrote nothing for 1000 s in a save");
  }
  for (const auto& error : errors_of(8)) EXPECT_FALSE(error) << error->what();
}

// Time in which all ranks are stopped, because the job is suspended, does not count.
TEST(DiskVotes, TimeInWhichRanksWereStoppedDoesNotCount) {
  const auto errors = SimulatedRanks(2).run([&](Communicator& world) {
    DiskVotes disks(world, {.seconds = 1.5, .hosts = {}});
    EXPECT_FALSE(disks.all_done(world.rank() == 0, 7));
    if (world.rank() == 0) std::this_thread::sleep_for(milliseconds(2000));
    EXPECT_FALSE(disks.all_done(world.rank() == 0, 7));
    EXPECT_TRUE(disks.all_done(true, 7));
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(DiskVotes, ASaveWhoseDiskDoesNotAnswerEnds) {
  for (const bool in_background : {false, true}) {
    const ScratchDirectory scratch;
    HangingIo io;
    io.name = rank_file_name(1);
    io.hangs = true;
    const MeshSizes mesh{1, 2, 1};
    SmallRun run(tiny_model(), mesh);
    run.fill(1);
    const auto errors = SimulatedRanks(2).run([&](Communicator& world) {
      RankMemory& own = run.ranks()[static_cast<size_t>(world.rank())];
      SavingRank rank(io, scratch.path(), world, mesh, run.units(), own, /*most_bytes=*/0);
      try {
        rank.writer.save(state_at(1, run.model()),
                         {.in_background = in_background, .patience = kHalfASecond});
      } catch (const Error&) {
        io.hangs = false;
        throw;
      }
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ExitCode::kCommunication) << error->what();
    }
    EXPECT_TRUE(list_checkpoints(io, scratch.path()).empty());
  }
}

}  // namespace
}  // namespace ripstop
