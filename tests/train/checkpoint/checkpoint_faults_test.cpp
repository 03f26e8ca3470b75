// Saves on failing file systems and in dying processes: the last good checkpoint stays, and all ranks agree.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "data/files/directory.h"
#include "tests/data/fault_io.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/checkpoint/verify.h"

namespace ripstop {
namespace {

constexpr MeshSizes kMesh{1, 2, 1};

/// The work of the ranks during a save.
enum class Beside { kWaits, kTrainsWithCopies, kTrainsWithoutCopies };

class CheckpointFaults : public testing::TestWithParam<Beside> {};
INSTANTIATE_TEST_SUITE_P(Modes, CheckpointFaults,
                         testing::Values(Beside::kWaits, Beside::kTrainsWithCopies,
                                         Beside::kTrainsWithoutCopies),
                         [](const auto& info) {
                           return info.param == Beside::kWaits              ? "Waits"
                                  : info.param == Beside::kTrainsWithCopies ? "TrainsWithCopies"
                                                                            : "TrainsWithoutCopies";
                         });

/// Puts whole checkpoints of steps 1 and 2 into `directory`.
void begin(const std::filesystem::path& directory) {
  static const ScratchDirectory prepared;
  if (!std::filesystem::exists(prepared / "step_00000002")) {
    QuickIo io;
    SmallRun run(tiny_model(), kMesh);
    run.save_step(io, prepared.path(), 1, {.keep = 2});
    run.save_step(io, prepared.path(), 2, {.keep = 2});
  }
  std::filesystem::copy(prepared.path(), directory, std::filesystem::copy_options::recursive);
}

/// The newest checkpoint that is whole to the last byte and has the values of its step; 0 if there is none.
int64_t newest_good(const std::filesystem::path& directory) {
  Io io;
  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
  for (auto at = listed.rbegin(); at != listed.rend(); ++at) {
    if (!at->manifest || !verify_checkpoint(io, at->directory).empty()) continue;
    SmallRun run(tiny_model(), kMesh);
    run.read(io, at->directory);
    EXPECT_TRUE(run.is_at(at->step));
    return at->step;
  }
  return 0;
}

bool has_left_behind(const std::filesystem::path& directory, const std::string& prefix) {
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().filename().string().rfind(prefix, 0) == 0) return true;
  return false;
}

/// Saves `step` in one of the modes.
std::vector<std::optional<Error>> save_in(Beside mode, SmallRun& run, Io& io,
                                          const std::filesystem::path& directory, int64_t step) {
  run.fill(step);
  const CheckpointState state = state_at(step, run.model());
  if (mode == Beside::kWaits) return run.save(io, directory, state, {.keep = 2});
  return run.save_beside_training(io, directory, state, {.keep = 2},
                                  mode == Beside::kTrainsWithCopies ? int64_t{1} << 40 : 0);
}

/// Saves `step` on a failing file system. Returns whether it worked; all ranks must agree.
bool save_with(Beside mode, FaultIo& io, const std::filesystem::path& directory, int64_t step) {
  SmallRun run(tiny_model(), kMesh);
  const auto thrown = save_in(mode, run, io, directory, step);
  for (const auto& error : thrown) {
    EXPECT_EQ(error.has_value(), thrown[0].has_value());
    if (!error || !thrown[0]) continue;
    EXPECT_EQ(error->code(), ExitCode::kStorage);
    EXPECT_STREQ(error->what(), thrown[0]->what());
  }
  return !thrown[0];
}

/// The number of file system calls in a save: all, or only pwrite calls to files named `pwrites_of`.
int64_t calls_of_a_save(Beside mode, int64_t step, const std::string& pwrites_of = "") {
  ScratchDirectory scratch;
  begin(scratch.path());
  FaultIo io;
  io.pwrites_of = pwrites_of;
  EXPECT_TRUE(save_with(mode, io, scratch.path(), step));
  EXPECT_GT(io.calls, pwrites_of.empty() ? 40 : 0);
  return io.calls;
}

/// Saves `step` again and again, with a failure at another call each time.
void fail_everywhere(Beside mode, int64_t step, int error, bool for_good) {
  const int64_t calls = calls_of_a_save(mode, step);
  int64_t failed = 0;
  for (int64_t at = 0; at < calls; ++at) {
    SCOPED_TRACE(fmt::format("call {}, {}", at, std::strerror(error)));
    ScratchDirectory scratch;
    begin(scratch.path());
    FaultIo io(FaultIo::Kind::kError, at, error);
    io.for_good = for_good;
    const bool saved = save_with(mode, io, scratch.path(), step);
    failed += saved ? 0 : 1;
    const int64_t newest = newest_good(scratch.path());
    // If the disk fails for good between the two renames of a replacement, only the next start can repair it.
    EXPECT_GE(newest, saved ? step : for_good ? 1 : 2);
    for (const char* name : {".tmp.", ".old.", "step_00000003"})
      EXPECT_TRUE(saved || for_good || !has_left_behind(scratch.path(), name)) << name;
    Io healed;
    prepare_checkpoint_directory(healed, scratch.path());
    EXPECT_GE(newest_good(scratch.path()), 2);
    if (at % 4 != 0) continue;
    FaultIo none;
    EXPECT_TRUE(save_with(mode, none, scratch.path(), 4));
    EXPECT_EQ(newest_good(scratch.path()), 4);
  }
  EXPECT_GT(failed, calls / 3);
}

/// Tracks what a power loss could destroy: the bytes and names written since the last sync of their file or
/// directory.
class VolatileIo : public Io {
 public:
  int open(const std::filesystem::path& path, int flags) override {
    const int file = Io::open(path, flags);
    const std::lock_guard lock(mutex_);
    paths_[file] = path;
    if ((flags & O_CREAT) != 0) lost_.insert(path.parent_path());
    return file;
  }
  ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override {
    const std::lock_guard lock(mutex_);
    lost_.insert(paths_[file]);
    return Io::pwrite(file, bytes, count, offset);
  }
  int fsync(int file) override {
    const std::lock_guard lock(mutex_);
    lost_.erase(paths_[file]);
    return Io::fsync(file);
  }
  int mkdir(const std::filesystem::path& path) override {
    const std::lock_guard lock(mutex_);
    lost_.insert(path.parent_path());
    return Io::mkdir(path);
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    const std::lock_guard lock(mutex_);
    if (to.filename() == "step_00000003") {
      ++commits;
      for (const std::filesystem::path& path : lost_)
        EXPECT_NE(path.string().rfind(from.string(), 0), 0u) << path << " is not synced before the commit";
    }
    lost_.insert(to.parent_path());
    return Io::rename(from, to);
  }
  bool may_lose(const std::filesystem::path& path) const { return lost_.count(path) != 0; }
  int commits = 0;

 private:
  std::mutex mutex_;  // threads write and read back a file
  std::map<int, std::filesystem::path> paths_;
  std::set<std::filesystem::path> lost_;
};

TEST_P(CheckpointFaults, EverythingIsSyncedBeforeTheCommitAndTheCommitBeforeTheReturn) {
  for (const bool replaces : {false, true}) {
    ScratchDirectory scratch;
    QuickIo quick;
    if (replaces) SmallRun(tiny_model(), kMesh).save_step(quick, scratch.path(), 3);
    VolatileIo io;
    SmallRun run(tiny_model(), kMesh);
    for (const auto& error : save_in(GetParam(), run, io, scratch.path(), 3)) EXPECT_FALSE(error);
    EXPECT_EQ(io.commits, 1);
    EXPECT_FALSE(io.may_lose(scratch.path()));
  }
}

TEST_P(CheckpointFaults, OneErrorAtAnyCall) {
  fail_everywhere(GetParam(), 3, ENOSPC, false);
}

TEST_P(CheckpointFaults, OneErrorAtAnyCallOfAReplacement) {
  fail_everywhere(GetParam(), 2, EIO, false);
}

TEST_P(CheckpointFaults, EveryCallFailsFromAnyCallOn) {
  fail_everywhere(GetParam(), 3, EROFS, true);
  fail_everywhere(GetParam(), 2, ENOSPC, true);
}

TEST_P(CheckpointFaults, InterruptedAndShortCallsAreContinued) {
  const Beside mode = GetParam();
  const int64_t calls = calls_of_a_save(mode, 3);
  for (const FaultIo::Kind kind : {FaultIo::Kind::kInterrupted, FaultIo::Kind::kShort})
    for (int64_t at = 0; at < calls; ++at) {
      ScratchDirectory scratch;
      begin(scratch.path());
      FaultIo io(kind, at);
      EXPECT_TRUE(save_with(mode, io, scratch.path(), 3)) << at;
      EXPECT_EQ(newest_good(scratch.path()), 3) << at;
    }
}

TEST_P(CheckpointFaults, AWrongBitOnTheDiskIsFoundBeforeTheCommit) {
  const Beside mode = GetParam();
  for (int64_t rank = 0; rank < kMesh.ranks(); ++rank) {
    const std::string file = rank_file_name(rank);
    const int64_t writes = calls_of_a_save(mode, 3, file);
    for (int64_t at = 0; at < writes; ++at) {
      SCOPED_TRACE(fmt::format("write {} of {} of {}", at, writes, file));
      ScratchDirectory scratch;
      begin(scratch.path());
      FaultIo io;
      io.kind = FaultIo::Kind::kFlip;
      io.pwrites_of = file;
      io.at = at;
      EXPECT_FALSE(save_with(mode, io, scratch.path(), 3));
      EXPECT_EQ(io.flips, 1);
      EXPECT_EQ(newest_good(scratch.path()), 2);
    }
  }
}

TEST(CheckpointReadFaults, ReadingSaysWhatFailed) {
  ScratchDirectory scratch;
  begin(scratch.path());
  SmallRun run(tiny_model(), {1, 1, 1});
  FaultIo counting;
  run.read(counting, scratch / "step_00000002");
  for (int64_t at = 0; at < counting.calls; ++at)
    for (const FaultIo::Kind kind :
         {FaultIo::Kind::kError, FaultIo::Kind::kInterrupted, FaultIo::Kind::kShort}) {
      FaultIo io(kind, at);
      try {
        run.fill(1);
        run.read(io, scratch / "step_00000002");
        EXPECT_TRUE(run.is_at(2)) << at;
      } catch (const Error& error) {
        EXPECT_EQ(kind, FaultIo::Kind::kError);
        EXPECT_EQ(error.code(), ExitCode::kStorage);
        // Also takeovers.json, which decides whether the checkpoint may be used.
        const std::string what = error.what();
        EXPECT_TRUE(what.find("step_00000002") != what.npos || what.find("takeovers.json") != what.npos)
            << what;
      }
    }
}

void kill_everywhere(Beside mode, int64_t step) {
  const int64_t calls = calls_of_a_save(mode, step);
  for (int64_t at = 0; at < calls; ++at) {
    SCOPED_TRACE(at);
    ScratchDirectory scratch;
    begin(scratch.path());
    FaultIo io(FaultIo::Kind::kKill, at);
    EXPECT_FALSE(survives([&] { save_with(mode, io, scratch.path(), step); }));
    // The next start is also killed, during its clean-up.
    FaultIo cleaning(FaultIo::Kind::kKill, at % 12);
    survives([&] { prepare_checkpoint_directory(cleaning, scratch.path()); });
    Io healed;
    prepare_checkpoint_directory(healed, scratch.path());
    EXPECT_GE(newest_good(scratch.path()), 2);
    for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
      EXPECT_EQ(entry.path().filename().string().rfind("step_", 0), 0u) << entry.path();
    FaultIo none;
    EXPECT_TRUE(save_with(mode, none, scratch.path(), 4));
  }
}

TEST_P(CheckpointFaults, KilledAtAnyCall) {
  kill_everywhere(GetParam(), 3);
}

TEST_P(CheckpointFaults, KilledAtAnyCallOfAReplacement) {
  kill_everywhere(GetParam(), 2);
}

TEST_P(CheckpointFaults, KilledAtRandomMoments) {
  ScratchDirectory scratch;
  std::mt19937 random(20261121);
  int64_t acknowledged = 0, commits = 0;
  double first_save_us = 0;  // the moments of the kills are chosen from this
  for (int round = 0; round < 200; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      QuickIo io;
      prepare_checkpoint_directory(io, scratch.path());
      SmallRun run(tiny_model(), round % 2 == 0 ? kMesh : MeshSizes{1, 1, 1, 2});
      for (int64_t step = newest_good(scratch.path()) + 1;; ++step) {
        for (const auto& error : save_in(GetParam(), run, io, scratch.path(), step))
          if (error) _exit(2);
        if (write(ends[1], &step, sizeof step) != sizeof step) _exit(1);
      }
    }
    close(ends[1]);
    if (round == 0) {
      ASSERT_EQ(read(ends[0], &acknowledged, sizeof acknowledged), static_cast<ssize_t>(sizeof acknowledged));
      ++commits;
      first_save_us =
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    } else {
      usleep(static_cast<useconds_t>(std::min(first_save_us, 100e3) * 2 *
                                     static_cast<double>(random() % 1000) / 1000));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (int64_t step; read(ends[0], &step, sizeof step) == sizeof step; ++commits) acknowledged = step;
    close(ends[0]);
    ASSERT_GE(newest_good(scratch.path()), acknowledged) << "round " << round;
  }
  EXPECT_GT(commits, 0);
}

TEST_P(CheckpointFaults, AFullDiskCostsTheSaveAlone) {
  ScratchDirectory scratch;
  if (mount("tmpfs", scratch.path().c_str(), "tmpfs", 0, "size=600k") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs here: " << std::strerror(errno);
  struct Unmount {
    std::filesystem::path path;
    ~Unmount() { umount(path.c_str()); }
  } const unmount{scratch.path()};
  Io io;
  SmallRun run(tiny_model(), kMesh);
  int64_t step = 0, failed = 0;
  const auto thrown = SimulatedRanks(kMesh.ranks()).run([&](Communicator& world) {
    RankMemory& own = run.ranks()[static_cast<size_t>(world.rank())];
    SavingRank rank(io, scratch.path(), world, kMesh, run.units(), own,
                    GetParam() == Beside::kTrainsWithCopies ? int64_t{1} << 40 : 0);
    int64_t next = 1, refused = 0;
    for (int attempt = 0; attempt < 60 && refused < 20; ++attempt) {
      own.fill(next);
      try {
        rank.writer.begin(state_at(next, run.model()),
                          {.keep = 0, .in_background = GetParam() != Beside::kWaits});
        if (GetParam() != Beside::kWaits) overwrite_when_free(rank.snapshot, own);
        rank.writer.commit();
        ++next;
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.code(), ExitCode::kStorage);
        if (world.rank() != 0) continue;
        EXPECT_FALSE(has_left_behind(scratch.path(), ".tmp."));
        EXPECT_EQ(newest_good(scratch.path()), next - 1);
      }
    }
    step = next - 1;
    failed = refused;
  });
  EXPECT_FALSE(thrown[0] || thrown[1]);
  EXPECT_EQ(failed, 20);
  EXPECT_GT(step, 2);
  EXPECT_THROW(check_disk_space(io, scratch.path(), 0, int64_t{1} << 20), Error);
  ASSERT_TRUE(remove_tree(io, scratch / "step_00000001"));
  run.save_step(io, scratch.path(), step + 1, {.keep = 0});
  EXPECT_EQ(newest_good(scratch.path()), step + 1);
}

}  // namespace
}  // namespace ripstop
