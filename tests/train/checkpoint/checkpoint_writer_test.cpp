// The ranks around the commit of a save. checkpoint_reshard_test and checkpoint_faults_test check the bytes.
#include "train/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/data/hanging_io.h"
#include "tests/expect_error.h"
#include "tests/train/checkpoint/checkpoint_model.h"

namespace ripstop {
namespace {

// commit() returns only after rank 0 has removed old checkpoints, which may take long: the next step has a
// short deadline.
TEST(CheckpointWriter, RanksLeaveWhenOldCheckpointsAreRemoved) {
  const ScratchDirectory scratch;
  QuickIo io;
  const MeshSizes mesh{1, 4, 1};
  SmallRun run(tiny_model(), mesh);
  run.fill(1);
  const auto errors = SimulatedRanks(4).run([&](Communicator& world) {
    CheckpointWriter writer = memory_writer(io, scratch.path(), world, mesh,
                                            run.ranks()[static_cast<size_t>(world.rank())].units());
    // Many saves, because any rank may be the first to return.
    for (int64_t step = 1; step <= 20; ++step) {
      writer.save(state_at(step, run.model()), {.keep = 1});
      EXPECT_FALSE(std::filesystem::exists(scratch / step_directory_name(step - 1)))
          << "rank " << world.rank() << " has left the save of step " << step;
    }
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

// SaveReport::seconds leaves out the training between the end of the writing and the commit.
TEST(CheckpointWriter, TheTimeOfASaveIsThatOfItsWork) {
  const ScratchDirectory scratch;
  QuickIo io;
  const MeshSizes mesh{1, 2, 1};
  SmallRun run(tiny_model(), mesh);
  run.fill(1);
  const auto errors = SimulatedRanks(2).run([&](Communicator& world) {
    RankMemory& own = run.ranks()[static_cast<size_t>(world.rank())];
    SavingRank rank(io, scratch.path(), world, mesh, run.units(), own, /*most_bytes=*/0);
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    rank.writer.begin(state_at(1, run.model()), {.in_background = true});
    while (rank.writer.is_writing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const SaveReport report = rank.writer.commit();
    EXPECT_GT(report.seconds, 0) << "rank " << world.rank();
    EXPECT_LT(report.seconds, std::chrono::duration<double>(Clock::now() - begin).count() - 1.5)
        << "rank " << world.rank();
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(CheckpointWriter, TellsWhetherItsThreadEnds) {
  const ScratchDirectory scratch;
  HangingIo io;
  const MeshSizes mesh{1, 1, 1};
  SmallRun run(tiny_model(), mesh);
  run.fill(1);
  const auto errors = SimulatedRanks(1).run([&](Communicator& world) {
    CheckpointWriter writer = memory_writer(io, scratch.path(), world, mesh, run.ranks()[0].units());
    EXPECT_TRUE(writer.ends_within(std::chrono::milliseconds(0))) << "there is no save";
    writer.save(state_at(1, run.model()), {});
    io.hangs = true;
    expect_error([&] { writer.save(state_at(2, run.model()), {.patience = {.seconds = 0.3, .hosts = {}}}); },
                 ExitCode::kCommunication);
    EXPECT_FALSE(writer.ends_within(std::chrono::milliseconds(50)));
    io.hangs = false;
    EXPECT_TRUE(writer.ends_within(std::chrono::seconds(20)));
  });
  EXPECT_FALSE(errors[0]) << errors[0]->what();
}

}  // namespace
}  // namespace ripstop
