// The checkpoints that are kept and deleted, and the one from which a run goes on.
#include <gtest/gtest.h>

#include <random>

#include "tests/data/fault_io.h"
#include "tests/expect_error.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/verify.h"

namespace ripstop {
namespace {

class CheckpointDirectoryTest : public testing::Test {
 protected:
  void save(int64_t step, int64_t keep = 0, std::optional<BestSoFar> best = {}) {
    run_.fill(step);
    CheckpointState state = state_at(step, run_.model());
    state.best = std::move(best);
    report_ = {};
    for (const auto& error : run_.save(io_, path(), state, {.keep = keep}, &report_))
      ASSERT_FALSE(error) << error->what();
  }
  void damage(int64_t step, const std::string& file) {
    const auto name = path() / step_directory_name(step) / file;
    std::string bytes = read_bytes(name);
    bytes[bytes.size() - 1] ^= 1;
    write_bytes(name, bytes);
  }
  std::vector<int64_t> whole() {
    std::vector<int64_t> steps;
    for (const ListedCheckpoint& listed : list_checkpoints(io_, path()))
      if (listed.manifest) steps.push_back(listed.step);
    return steps;
  }
  /// Resumes from the newest checkpoint. Returns its step, or 0 for a fresh start.
  int64_t resume(std::vector<std::optional<Error>>* thrown = nullptr) {
    warnings_.clear();
    int64_t step = 0;
    run_.fill(99);
    const auto errors = SimulatedRanks(run_.mesh().ranks()).run([&](Communicator& world) {
      RankMemory& own = run_.ranks()[static_cast<size_t>(world.rank())];
      std::vector<std::string> warnings;
      const auto state = resume_newest(
          io_, path(), world, [](const Checkpoint&) {}, loading_into(io_, own), warnings);
      if (world.rank() != 0) return;
      warnings_ = warnings;
      if (state) step = state->step;
    });
    if (thrown != nullptr) *thrown = errors;
    EXPECT_TRUE(step == 0 || run_.is_at(step));
    return step;
  }
  const std::filesystem::path& path() const { return scratch_.path(); }

  QuickIo io_;
  ScratchDirectory scratch_;
  SmallRun run_{tiny_model(), {1, 2, 1}};
  SaveReport report_;
  std::vector<std::string> warnings_;
};

using Steps = std::vector<int64_t>;

TEST_F(CheckpointDirectoryTest, KeepsTheNewestAndTheBest) {
  save(1, 2, BestSoFar{"loss", 3, 1});
  save(2, 2, BestSoFar{"loss", 3, 1});
  save(3, 2, BestSoFar{"loss", 3, 1});
  EXPECT_EQ(whole(), (Steps{1, 2, 3}));
  save(4, 2, BestSoFar{"loss", 3, 1});
  EXPECT_EQ(whole(), (Steps{1, 3, 4}));
  save(5, 2, BestSoFar{"loss", 2, 5});
  EXPECT_EQ(whole(), (Steps{4, 5}));
  save(6, 0);
  EXPECT_EQ(whole(), (Steps{4, 5, 6})) << "keep 0 keeps all";
}

TEST_F(CheckpointDirectoryTest, DamagedCheckpointsDoNotCountAndStay) {
  save(1, 2);
  save(2, 2);
  damage(2, Manifest::kFileName);
  save(3, 2);
  EXPECT_EQ(whole(), (Steps{1, 3}));
  EXPECT_TRUE(std::filesystem::exists(path() / "step_00000002"));
  save(2, 2);  // replaces the damaged one
  EXPECT_EQ(whole(), (Steps{1, 2, 3})) << "checkpoints newer than the saved step stay";
}

TEST_F(CheckpointDirectoryTest, RandomHistoriesKeepAtLeastOne) {
  std::mt19937 random(7);
  for (int history = 0; history < 25; ++history) {
    std::filesystem::remove_all(path());
    const int64_t keep = 1 + static_cast<int64_t>(random() % 3);
    std::optional<BestSoFar> best;
    for (int64_t step = 1; step <= 8; ++step) {
      if (random() % 3 == 0) best = BestSoFar{"loss", 1, step};
      save(step, keep, best);
      const Steps steps = whole();
      ASSERT_FALSE(steps.empty());
      EXPECT_EQ(steps.back(), step);
      EXPECT_LE(static_cast<int64_t>(steps.size()), keep + 1);
      if (random() % 4 == 0) damage(steps[random() % steps.size()], Manifest::kFileName);
      if (random() % 4 != 0 || whole().empty()) continue;
      const int64_t newest = whole().back();
      EXPECT_EQ(resume(), newest);
    }
  }
}

TEST_F(CheckpointDirectoryTest, NamesThatOnlyResembleACheckpointAreNone) {
  for (const char* name :
       {"step-12-backup", "step_12", "step_000000012", "step_0000000a", "step_00000012.damaged", "step_",
        "step_00000012 ", "step_+0000012", "Step_00000012", "notes.txt", "latest"})
    std::filesystem::create_directories(path() / name);
  write_bytes(path() / "step_00000005", "a file");
  EXPECT_TRUE(list_checkpoints(io_, path()).empty());
  EXPECT_EQ(resume(), 0);
  save(3);
  std::filesystem::create_directories(path() / "step_123456789012");
  const auto listed = list_checkpoints(io_, path());
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[1].step, 123456789012);
  EXPECT_NE(listed[1].problem, "");
  EXPECT_EQ(resume(), 3);
}

TEST_F(CheckpointDirectoryTest, ResumesFromTheNewestThatIsWhole) {
  EXPECT_EQ(resume(), 0) << "a fresh start";
  for (int64_t step = 1; step <= 4; ++step) save(step);
  EXPECT_EQ(resume(), 4);
  EXPECT_TRUE(warnings_.empty());
  damage(4, "rank_00001.h5");      // found by one rank, while it reads
  damage(3, "manifest.json");      // found when rank 0 lists the checkpoints
  damage(2, "rank_00000.blocks");  // found when it is opened
  EXPECT_EQ(resume(), 1);
  ASSERT_EQ(warnings_.size(), 6u);
  EXPECT_HAS(warnings_[0], "rank_00001.h5");
  EXPECT_EQ(whole(), (Steps{1}));
  EXPECT_TRUE(std::filesystem::exists(path() / "step_00000004.damaged" / "rank_00001.h5"));
}

// One node cannot read the newer checkpoint for a moment. It is whole, and an older one would lose steps.
TEST_F(CheckpointDirectoryTest, ARankThatCannotReadAWholeCheckpointMovesNothing) {
  save(1);
  save(2);
  int64_t failed[2] = {0, 0};
  for (int64_t number = 0; number < 40; ++number) {
    const int64_t shaky_rank = number % 2, call = number / 2;
    run_.fill(99);
    FaultIo shaky(FaultIo::Kind::kError, call, EACCES);  // EIO would be tried again
    const auto thrown = SimulatedRanks(run_.mesh().ranks()).run([&](Communicator& world) {
      RankMemory& own = run_.ranks()[static_cast<size_t>(world.rank())];
      Io& io = world.rank() == shaky_rank ? static_cast<Io&>(shaky) : io_;
      std::vector<std::string> warnings;
      const auto state = resume_newest(
          io, path(), world, [](const Checkpoint&) {}, loading_into(io, own), warnings);
      EXPECT_EQ(state->step, 2);
    });
    EXPECT_EQ(thrown[0].has_value(), thrown[1].has_value());
    if (thrown[0]) {
      ++failed[shaky_rank];
      EXPECT_EQ(thrown[0]->code(), ExitCode::kStorage);
      EXPECT_STREQ(thrown[0]->what(), thrown[1]->what());
    }
    EXPECT_EQ(whole(), (Steps{1, 2})) << "rank " << shaky_rank << " call " << call;
  }
  EXPECT_GT(failed[0], 8);
  EXPECT_GT(failed[1], 4);
}

TEST_F(CheckpointDirectoryTest, NeverAFreshStartOverDamage) {
  save(1);
  save(2);
  damage(1, "rank_00000.h5");
  damage(2, "rank_00001.h5");
  std::vector<std::optional<Error>> thrown;
  resume(&thrown);
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ExitCode::kStorage);
    EXPECT_STREQ(error->what(), thrown[0]->what());
  }
  EXPECT_TRUE(std::filesystem::exists(path() / "step_00000002")) << "nothing is moved";
}

TEST_F(CheckpointDirectoryTest, OneOfAnEarlierFormatIsRefusedAndNeverPassedOver) {
  save(1);
  save(2);
  save(3);
  make_older(path() / "step_00000002");
  damage(3, Manifest::kFileName);
  const auto listed = list_checkpoints(io_, path());
  EXPECT_STREQ(listed[1].verdict(), "unreadable");
  EXPECT_STREQ(listed[2].verdict(), "damaged");
  std::vector<std::optional<Error>> thrown;
  EXPECT_EQ(resume(&thrown), 0);
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ExitCode::kStorage);
    EXPECT_HAS(error->what(), "step_00000002/manifest.json: was written by an older ripstop");
    EXPECT_HAS(error->hint(), "go on with the version that wrote it: ripstop ");
  }
  EXPECT_EQ(find_checkpoint(io_, path(), "latest").filename(), "step_00000002");
  EXPECT_EQ(find_checkpoint(io_, path(), "best").filename(), "step_00000002");
  std::vector<std::string> warnings;
  remove_old_checkpoints(io_, path(), 3, 1, {}, warnings);
  for (const int64_t step : {1, 2, 3})
    EXPECT_TRUE(std::filesystem::exists(path() / step_directory_name(step)));
}

TEST_F(CheckpointDirectoryTest, AcceptMayRefuse) {
  save(1);
  const auto thrown = SimulatedRanks(1).run([&](Communicator& world) {
    SmallRun other(tiny_model(), {1, 1, 1});
    std::vector<std::string> warnings;
    resume_newest(
        io_, path(), world,
        [](const Checkpoint& checkpoint) {
          fail(ExitCode::kUsage, "step {} was made with other options", checkpoint.manifest.state.step);
        },
        loading_into(io_, other.ranks()[0]), warnings);
  });
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ExitCode::kUsage);
}

TEST_F(CheckpointDirectoryTest, TheStartRemovesTheRemainsOfKilledSaves) {
  save(1);
  save(2);
  std::filesystem::rename(path() / "step_00000002", path() / ".old.step_00000002.1.2");
  std::filesystem::copy(path() / "step_00000001", path() / ".old.step_00000001.1.2");
  write_bytes(path() / ".tmp.step_00000003.1.2" / "rank_00000.h5", "x");
  write_bytes(path() / ".trash.step_00000000.1.2" / "rank_00000.h5", "x");
  write_bytes(path() / "mine.txt", "x");
  prepare_checkpoint_directory(io_, path());
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path()))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"mine.txt", "step_00000001", "step_00000002"}));
  EXPECT_EQ(whole(), (Steps{1, 2}));
}

TEST_F(CheckpointDirectoryTest, AReadOnlyDirectoryIsRefusedAtTheStart) {
  FaultIo io(FaultIo::Kind::kError, 1, EROFS);
  io.for_good = true;
  expect_error([&] { prepare_checkpoint_directory(io, path()); }, ExitCode::kStorage, "", "read-only");
}

// Damaged checkpoints that a resume moved aside are listed, because they take room. They are deleted when
// their step is saved again.
TEST_F(CheckpointDirectoryTest, DamagedOnesThatWereMovedAsideGoWhenTheirStepIsSavedAgain) {
  for (int64_t step = 1; step <= 3; ++step) save(step, 2);
  damage(3, "rank_00000.h5");
  EXPECT_EQ(resume(), 2);
  std::filesystem::create_directories(path() / "step_00000009.damaged.12");
  for (const char* name : {"step_00000001.damaged.mine", "step_1.damaged", "step_00000002.damage"})
    std::filesystem::create_directories(path() / name);
  std::vector<CheckpointAside> damaged = list_aside(io_, path());
  ASSERT_EQ(damaged.size(), 2u);
  EXPECT_EQ(damaged[0].step, 3);
  EXPECT_GT(damaged[0].bytes, std::filesystem::file_size(path() / "step_00000003.damaged/rank_00000.h5"));
  EXPECT_EQ(damaged[1].step, 9);
  save(2, 2);
  EXPECT_EQ(list_aside(io_, path()).size(), 2u) << "the run has not reached step 3";
  save(4, 2);
  EXPECT_EQ(list_aside(io_, path()).size(), 2u) << "files that are missing may come back";
  save(3, 0);
  EXPECT_EQ(list_aside(io_, path()).size(), 2u) << "keep 0 removes nothing";
  save(3, 2);
  damaged = list_aside(io_, path());
  ASSERT_EQ(damaged.size(), 1u);
  EXPECT_EQ(damaged[0].step, 9);
  ASSERT_EQ(report_.warnings.size(), 1u);
  EXPECT_HAS(report_.warnings[0], "removed");
  EXPECT_TRUE(std::filesystem::exists(path() / "step_00000001.damaged.mine")) << "somebody else's name";
}

/// A disk with `room` free bytes.
class SmallDisk : public QuickIo {
 public:
  int64_t room = 0;
  int free_bytes(const std::filesystem::path&, int64_t& bytes) override {
    bytes = room;
    return 0;
  }
};

TEST_F(CheckpointDirectoryTest, ChecksTheFreeSpace) {
  SmallDisk disk;
  save(1);
  const int64_t bytes = read_manifest(io_, path() / "step_00000001").bytes();
  disk.room = 3 * bytes;
  EXPECT_NO_THROW(check_disk_space(disk, path(), 3, bytes)) << "4 in all, 1 is there";
  disk.room = 3 * bytes - 1;
  EXPECT_THROW(check_disk_space(disk, path(), 3, bytes), Error);
  disk.room = bytes;
  EXPECT_NO_THROW(check_disk_space(disk, path(), 0, bytes));
  write_bytes(path() / "step_00000002.damaged" / "rank_00000.h5", std::string(1000, 'x'));
  expect_error([&] { check_disk_space(disk, path(), 3, bytes); }, ExitCode::kStorage, "",
               "1000 B are in step_*.damaged there");
}

// An imported checkpoint has holes in place of moments, so deleting it frees less than its size.
TEST_F(CheckpointDirectoryTest, HolesAreNoRoom) {
  SmallDisk disk;
  save(1);
  const std::filesystem::path directory = path() / "step_00000001", file = directory / rank_file_name(0);
  Manifest manifest = read_manifest(io_, directory);
  constexpr int64_t kHole = int64_t{64} << 20;
  manifest.files[0].bytes += kHole;
  std::filesystem::resize_file(file, static_cast<uintmax_t>(manifest.files[0].bytes));
  std::filesystem::remove(directory / Manifest::kFileName);
  write_bytes(directory / Manifest::kFileName, manifest_text(manifest));
  ASSERT_TRUE(list_checkpoints(io_, path())[0].manifest) << list_checkpoints(io_, path())[0].problem;
  const int64_t wanted = 4 * kHole;
  disk.room = wanted;
  EXPECT_NO_THROW(check_disk_space(disk, path(), 3, kHole));
  disk.room = wanted - kHole;
  EXPECT_THROW(check_disk_space(disk, path(), 3, kHole), Error);
}

// A checkpoint that a killed save was replacing counts, even before the next start puts it back.
TEST_F(CheckpointDirectoryTest, ACheckpointThatWasBeingReplacedCounts) {
  save(1);
  save(2);
  std::filesystem::rename(path() / "step_00000002", path() / ".old.step_00000002.1.2");
  EXPECT_EQ(whole(), (Steps{1, 2}));
  EXPECT_EQ(find_checkpoint(io_, path(), "latest"), path() / ".old.step_00000002.1.2");
  EXPECT_EQ(find_checkpoint(io_, path(), "2"), path() / ".old.step_00000002.1.2");
  // If its step has another checkpoint, that one counts.
  std::filesystem::copy(path() / ".old.step_00000002.1.2", path() / "step_00000002");
  EXPECT_EQ(find_checkpoint(io_, path(), "latest"), path() / "step_00000002");
  EXPECT_EQ(whole(), (Steps{1, 2}));
}

class LinkedCheckpointTest : public CheckpointDirectoryTest {
 protected:
  /// Moves a checkpoint into an archive and leaves a link in its place.
  void archive(int64_t step) {
    const std::string name = step_directory_name(step);
    std::filesystem::create_directories(archive_.path());
    std::filesystem::rename(path() / name, archive_ / name);
    std::filesystem::create_directory_symlink(archive_ / name, path() / name);
  }
  bool archive_is_whole(int64_t step) {
    return verify_checkpoint(io_, archive_ / step_directory_name(step)).empty();
  }
  ScratchDirectory archive_;
};

TEST_F(LinkedCheckpointTest, AreUsedAndSaid) {
  save(1);
  save(2);
  archive(1);
  archive(2);
  EXPECT_EQ(whole(), (Steps{1, 2}));
  EXPECT_EQ(resume(), 2);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_HAS(warnings_[0], "step_00000002 is a symbolic link");
}

TEST_F(LinkedCheckpointTest, DeletingAndReplacingLeaveTheArchiveAlone) {
  for (int64_t step = 1; step <= 3; ++step) save(step);
  for (int64_t step = 1; step <= 3; ++step) archive(step);
  prepare_checkpoint_directory(io_, path());
  save(3, 2);  // replaces the link of step 3, and deletes that of step 1
  EXPECT_TRUE(report_.warnings.empty());
  EXPECT_EQ(whole(), (Steps{2, 3}));
  EXPECT_FALSE(std::filesystem::is_symlink(path() / "step_00000003"));
  for (int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(archive_is_whole(step)) << step;
}

TEST_F(LinkedCheckpointTest, ADamagedOneIsMovedAsideAsALink) {
  save(1);
  save(2);
  archive(2);
  damage(2, "rank_00000.h5");
  EXPECT_EQ(resume(), 1);
  EXPECT_TRUE(std::filesystem::is_symlink(path() / "step_00000002.damaged"));
  EXPECT_EQ(list_aside(io_, path()).at(0).bytes, 0) << "deleting the link frees nothing";
  save(2, 2);
  EXPECT_FALSE(std::filesystem::is_symlink(path() / "step_00000002.damaged"));
  EXPECT_TRUE(std::filesystem::exists(archive_ / "step_00000002" / "rank_00000.h5"));
}

// If a link leads nowhere, its archive may be unmounted. An older checkpoint would lose steps.
TEST_F(LinkedCheckpointTest, ALinkThatLeadsNowhereStopsTheResume) {
  save(1);
  save(2);
  archive(2);
  std::filesystem::rename(archive_ / "step_00000002", archive_ / "unmounted");
  std::vector<std::optional<Error>> thrown;
  resume(&thrown);
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ExitCode::kStorage);
  EXPECT_HAS(thrown[0]->what(), "cannot read the newest checkpoint");
  EXPECT_TRUE(std::filesystem::is_symlink(path() / "step_00000002"));
}

TEST_F(LinkedCheckpointTest, TheStartDoesNotFollowLinksWithItsOwnNames) {
  save(1);
  for (const char* name : {".old.foo", ".old.step_00000001.1.2", ".tmp.foo", ".trash.foo"})
    std::filesystem::create_directory_symlink(archive_.path(), path() / name);
  write_bytes(archive_ / "mine", "x");
  prepare_checkpoint_directory(io_, path());
  EXPECT_TRUE(std::filesystem::exists(archive_ / "mine"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path()), {}), 1);
}

TEST_F(LinkedCheckpointTest, AreNoRoomForMoreCheckpoints) {
  SmallDisk disk;
  save(1);
  const int64_t bytes = read_manifest(io_, path() / "step_00000001").bytes();
  disk.room = bytes;
  EXPECT_NO_THROW(check_disk_space(disk, path(), 1, bytes));
  archive(1);
  EXPECT_THROW(check_disk_space(disk, path(), 1, bytes), Error);
}

}  // namespace
}  // namespace ripstop
