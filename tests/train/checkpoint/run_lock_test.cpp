#include "train/checkpoint/run_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/core/error.h"
#include "tests/data/hanging_io.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

constexpr RunLockTimes kFast{0.02, 0.4};

std::string refusal(Io& io, const std::filesystem::path& directory, const RunLockTimes& times = kFast) {
  return what_of([&] { RunLock lock(io, directory, times); }, ExitCode::kStorage);
}

/// An owner on another machine, whose heartbeats change LOCK. On a busy machine they may come late.
struct Heart {
  Heart(const std::filesystem::path& path, const std::string& text) {
    const auto beat = [=](int64_t number) {
      write_bytes(path.string() + ".new", text + std::to_string(number) + "\n");
      std::filesystem::rename(path.string() + ".new", path);
    };
    beat(0);
    thread = std::jthread([=](const std::stop_token& stop) {
      for (int64_t number = 1; !stop.stop_requested(); ++number, usleep(10000)) beat(number);
    });
  }
  std::jthread thread;
};

TEST(RunLock, OneRunAtATime) {
  ScratchDirectory scratch;
  Io io;
  {
    RunLock lock(io, scratch.path(), kFast);
    EXPECT_EQ(lock.takeover(), "");
    EXPECT_HAS(refusal(io, scratch.path()), "process " + std::to_string(getpid()));
    EXPECT_NO_THROW(lock.check_still_owned());
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "LOCK"));
  EXPECT_EQ(refusal(io, scratch.path()), "");
}

TEST(RunLock, AKilledOwnerIsReplacedAtOnce) {
  ScratchDirectory scratch;
  Io io;
  const pid_t child = fork();
  if (child == 0) {
    RunLock lock(io, scratch.path(), {5, 30});
    pause();
  }
  while (!std::filesystem::exists(scratch / "LOCK") || std::filesystem::file_size(scratch / "LOCK") == 0)
    usleep(1000);
  usleep(20000);
  EXPECT_NE(refusal(io, scratch.path()), "") << "it lives";
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  {
    RunLock lock(io, scratch.path(), {5, 30});  // 30 s would be noticed
    EXPECT_HAS(lock.takeover(), std::to_string(child)) << "though its parent has not waited for it yet";
  }
  waitpid(child, nullptr, 0);
}

TEST(RunLock, AnOwnerElsewhereIsJudgedByItsHeartbeat) {
  ScratchDirectory scratch;
  Io io;
  const std::string elsewhere = "boot 1\nhost far\nnamespace n\nnonce x\npid 1\nstarted 5\n";
  write_bytes(scratch / "LOCK", elsewhere + "~beat 00000000000000000001\n");
  {
    RunLock lock(io, scratch.path(), kFast);
    EXPECT_HAS(lock.takeover(), "far");
  }
  std::optional<Heart> heart(std::in_place, scratch / "LOCK", elsewhere + "~beat ");
  EXPECT_HAS(refusal(io, scratch.path(), {0.02, 5}), "far");
  heart.reset();
  write_bytes(scratch / "LOCK", "");  // killed between making and writing it
  EXPECT_EQ(refusal(io, scratch.path()), "");
}

// A start that waits says so, and gives up on a stop request.
TEST(RunLock, WaitingIsSaidAndCanBeStopped) {
  ScratchDirectory scratch;
  Io io;
  write_bytes(scratch / "LOCK", "boot 1\nhost far\nnamespace n\nnonce x\npid 1\nstarted 5\n~beat 1\n");
  std::vector<std::string> said;
  const auto say = [&](const std::string& text) { said.push_back(text); };
  int looks = 0;
  const RunLockWait stopped{.say = say, .stop_requested = [&] { return ++looks == 3; }};
  expect_error([&] { const RunLock lock(io, scratch.path(), {5, 30}, stopped); }, ExitCode::kRequeue);
  EXPECT_EQ(looks, 3);
  EXPECT_TRUE(std::filesystem::exists(scratch / "LOCK"));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_HAS(said[0], "waiting up to 30 s for process 1 on far");
  const RunLock lock(io, scratch.path(), kFast, {.say = say, .stop_requested = {}});
  EXPECT_EQ(said.size(), 2u);
}

TEST(RunLock, ARequeuedJobFindsItsOwnLock) {
  ScratchDirectory scratch;
  Io io;
  write_bytes(scratch / "LOCK", "host far\njob 4711\nrestart 0\npid 1\n");
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("SLURM_RESTART_COUNT", "1", 1);
  RunLock lock(io, scratch.path(), {5, 3600});
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_RESTART_COUNT");
  EXPECT_NE(lock.takeover(), "");
}

/// Just before a stale lock is moved aside, another start replaces it by its own.
class RacingIo : public Io {
 public:
  std::string winner;
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (!winner.empty() && from.filename() == "LOCK") write_bytes(from, std::exchange(winner, ""));
    return Io::rename(from, to);
  }
};

TEST(RunLock, OfTwoStartsOverAStaleLockTheSecondGivesWay) {
  ScratchDirectory scratch;
  const std::string winner = "host near\nnonce y\npid 2\n";
  write_bytes(scratch / "LOCK", "host away\nnonce x\npid 1\n");
  RacingIo io;
  io.winner = winner;
  EXPECT_HAS(refusal(io, scratch.path()), "near");
  EXPECT_EQ(io.winner, "") << "there was a race";
  ASSERT_TRUE(std::filesystem::exists(scratch / "LOCK"));
  EXPECT_EQ(read_bytes(scratch / "LOCK"), winner);
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    EXPECT_EQ(entry.path().filename(), "LOCK");
}

class CopiedRun : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(original());
    std::filesystem::create_directories(copy());
  }
  std::filesystem::path original() const { return scratch_ / "original"; }
  std::filesystem::path copy() const { return scratch_ / "copy"; }
  /// The note of a start in the copy; "" if it is refused.
  std::string takeover_of_copy() {
    try {
      return RunLock(io_, copy(), kFast).takeover();
    } catch (const Error& error) {
      return "";
    }
  }
  ScratchDirectory scratch_;
  Io io_;
};

TEST_F(CopiedRun, ACopyOfALiveRunIsAnotherRun) {
  const RunLock owner(io_, original(), {5, 30});  // no heartbeat within kFast's patience
  std::filesystem::copy_file(original() / "LOCK", copy() / "LOCK");
  EXPECT_EQ(find_run_owner(io_, copy()).state, RunOwner::State::kAlive)
      << "the file is new: it may be moving";
  std::filesystem::last_write_time(copy() / "LOCK",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::minutes(2));
  const RunOwner seen = find_run_owner(io_, copy());
  EXPECT_EQ(seen.state, RunOwner::State::kGone);
  EXPECT_HAS(seen.note, "a copy of " + original().string());
  EXPECT_HAS(takeover_of_copy(), "this directory is a copy of " + original().string());
  EXPECT_NO_THROW(owner.check_still_owned());
  EXPECT_NE(refusal(io_, original()), "") << "the original stays protected";
}

// A hard link shows each heartbeat of the original.
TEST_F(CopiedRun, AHardLinkedLockIsNoSignOfLife) {
  const RunLock owner(io_, original(), {0.02, 30});
  std::filesystem::create_hard_link(original() / "LOCK", copy() / "LOCK");
  EXPECT_EQ(find_run_owner(io_, copy()).state, RunOwner::State::kGone);
  EXPECT_NE(takeover_of_copy(), "");
  EXPECT_NO_THROW(owner.check_still_owned());
  EXPECT_TRUE(std::filesystem::exists(original() / "LOCK"));
}

TEST_F(CopiedRun, AHeartbeatThatReachesItProtectsIt) {
  std::string text;
  {
    const RunLock owner(io_, original(), kFast);
    text = read_bytes(original() / "LOCK");
  }
  // Some file systems give a moved directory another inode.
  const Heart heart(copy() / "LOCK", text);
  EXPECT_NE(refusal(io_, copy(), {0.02, 5}), "");
}

TEST_F(CopiedRun, AMovedRunStaysProtected) {
  {
    const RunLock owner(io_, original(), {5, 30});
    std::filesystem::rename(original(), scratch_ / "moved");
    EXPECT_EQ(find_run_owner(io_, scratch_ / "moved").state, RunOwner::State::kAlive);
    EXPECT_NE(refusal(io_, scratch_ / "moved"), "");
    EXPECT_THROW(owner.check_still_owned(), Error) << "it must not save by the old path";
  }
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "moved/LOCK"));
}

/// The error of check_owner(), called until it throws or `seconds` have passed.
std::string loss_within(const RunLock& lock, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    const std::string what = what_of([&] { lock.check_owner(); }, ExitCode::kStorage);
    if (!what.empty()) return what;
    usleep(5000);
  }
  return "";
}

/// Replaces LOCK by another file, as another start does. Atomically, because a heartbeat may read at any
/// time.
void take_over(const ScratchDirectory& scratch) {
  std::filesystem::rename(scratch / "LOCK", scratch / "LOCK.stale.x");
  write_bytes(scratch / "next", "host other\nnonce y\npid 7\n");
  std::filesystem::rename(scratch / "next", scratch / "LOCK");
}

// The owner learns of it within seconds, without a read on the main thread, and stays an owner no more.
TEST(RunLock, TheHeartbeatNoticesATakeover) {
  ScratchDirectory scratch;
  Io io;
  RunLock lock(io, scratch.path(), {0.02, 30});
  EXPECT_EQ(loss_within(lock, 0.2), "");
  const std::string own = read_bytes(scratch / "LOCK");
  take_over(scratch);
  EXPECT_HAS(loss_within(lock, 20), "was taken over by process 7 on other");
  write_bytes(scratch / "LOCK", own);
  EXPECT_THROW(lock.check_owner(), Error);
  EXPECT_THROW(lock.check_still_owned(), Error);
}

TEST(RunLock, ALockThatIsGoneIsLost) {
  ScratchDirectory scratch;
  Io io;
  const RunLock lock(io, scratch.path(), {0.02, 30});
  std::filesystem::remove(scratch / "LOCK");
  EXPECT_HAS(loss_within(lock, 20), "its LOCK is gone, as if the directory was moved");
}

/// Whether RunLock::may_write becomes `may_write` within 20 s.
bool comes_to(const RunLock& lock, bool may_write) {
  for (int look = 0; look < 4000; ++look) {
    if (lock.may_write() == may_write) return true;
    usleep(5000);
  }
  return false;
}

// An owner with a late heartbeat must not write, because others may take over. If nobody has, it goes on,
// however long the file system did not answer.
TEST(RunLock, AnOwnerWhoseFileSystemHangsWritesNothingUntilItAnswers) {
  ScratchDirectory scratch;
  HangingIo io;
  const RunLock lock(io, scratch.path(), kFast);
  EXPECT_TRUE(comes_to(lock, true));
  io.hangs = true;
  EXPECT_TRUE(comes_to(lock, false));
  usleep(1'500'000);  // many times its patience
  EXPECT_FALSE(lock.may_write());
  EXPECT_NO_THROW(lock.check_owner()) << "it does not wait";
  io.hangs = false;
  EXPECT_NO_THROW(lock.check_still_owned()) << "it waits for the heartbeat";
  EXPECT_TRUE(comes_to(lock, true));
}

TEST(RunLock, AnOwnerWhoseFileSystemHangsLearnsOfATakeoverWhenItAnswers) {
  ScratchDirectory scratch;
  HangingIo io;
  {
    const RunLock lock(io, scratch.path(), kFast);
    io.hangs = true;
    EXPECT_TRUE(comes_to(lock, false));
    take_over(scratch);
    io.hangs = false;
    EXPECT_HAS(loss_within(lock, 20), "was taken over by process 7 on other");
    EXPECT_THROW(lock.may_write(), Error);
    EXPECT_THROW(lock.check_still_owned(), Error);
  }
  EXPECT_TRUE(std::filesystem::exists(scratch / "LOCK")) << "it is another's";
}

// After a stop of the process, or of the file system, the owner goes on if nobody has taken over.
TEST(RunLock, AHeartbeatThatComesBackKeepsTheRun) {
  ScratchDirectory scratch;
  HangingIo io;
  const RunLock lock(io, scratch.path(), {0.02, 1});
  io.hangs = true;
  usleep(1'100'000);  // older than a heartbeat may be
  std::thread returns([&] {
    usleep(100000);
    io.hangs = false;
  });
  EXPECT_NO_THROW(lock.check_still_owned()) << "it waits for the heartbeat";
  EXPECT_FALSE(io.hangs);
  returns.join();
}

// The wait ends by itself: no other rank would end it in a run of one rank.
// With the patience of 30 s the last heartbeat is not late yet.
TEST(RunLock, TheWaitForAFileSystemHasAnEnd) {
  ScratchDirectory scratch;
  HangingIo io;
  for (const double patience : {0.4, 30.0}) {
    const RunLock lock(io, scratch.path(), {0.02, patience, 3, 3});
    io.hangs = true;
    EXPECT_TRUE(patience > 1 || comes_to(lock, false));
    EXPECT_EQ(lock.is_stuck(), patience < 1);
    expect_error([&] { lock.check_still_owned(); }, ExitCode::kCommunication,
                 "does not answer: this process waited 3 s");
    io.hangs = false;
    EXPECT_NO_THROW(lock.check_still_owned()) << "nobody has taken over";
    EXPECT_FALSE(lock.is_stuck());
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "LOCK"));
}

int64_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// An owner that lost its directory ends while a slow call of the file system is under way.
TEST(RunLock, AnOwnerThatLostItsDirectoryEndsItsThread) {
  class SlowIo : public Io {
   public:
    std::atomic<int> calls = 0;
    ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override {
      calls += 1;
      usleep(100'000);
      return Io::pwrite(file, bytes, count, offset);
    }
  };
  ScratchDirectory scratch;
  SlowIo io;
  const int64_t before = threads();
  {
    const RunLock lock(io, scratch.path(), {.heartbeat_seconds = 0.02, .patience_seconds = 1});
    std::filesystem::remove(scratch / "LOCK");
    EXPECT_NE(loss_within(lock, 20), "");
    usleep(1'100'000);  // longer than its patience
    const int calls = io.calls;
    while (io.calls == calls) usleep(1000);
  }
  for (int look = 0; look < 4000 && threads() != before; ++look) usleep(5000);
  EXPECT_EQ(threads(), before);
}

// The file system has hung for less than the patience when the owner ends, and hangs on.
TEST(RunLock, AFileSystemThatBeginsToHangDoesNotHoldTheEnd) {
  const auto end = [] {
    ScratchDirectory scratch;
    HangingIo io;
    {
      const RunLock lock(io, scratch.path(), kFast);
      io.hangs = true;
      usleep(100'000);
    }
    _exit(3);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(3), "");
}

// The same with a process that is stopped while another takes over.
TEST(RunLock, AStoppedOwnerFindsThatItWasTakenOver) {
  ScratchDirectory scratch;
  Io io;
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(io, scratch.path(), kFast);
    alarm(60);  // if it does not notice
    kill(getpid(), SIGSTOP);
    for (;;) {
      try {
        if (lock.may_write()) write_bytes(scratch / "log", "written");
      } catch (const Error&) {
        _exit(74);
      }
    }
  }
  waitpid(child, nullptr, WUNTRACED);  // it stops itself: between a look and a write nobody could tell
  // Pretends another machine: on the same machine a stopped process is alive.
  std::string text = read_bytes(scratch / "LOCK");
  text.replace(text.find("boot ") + 5, 8, "elsewher");
  write_bytes(scratch / "LOCK", text);
  const RunLock next(io, scratch.path(), {0.02, 0.4});
  kill(child, SIGCONT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 74) << status;
  EXPECT_FALSE(std::filesystem::exists(scratch / "log")) << "it wrote after the takeover";
  EXPECT_NO_THROW(next.check_still_owned());
}

TEST(RunLock, TheOldOwnerLearnsOfATakeover) {
  ScratchDirectory scratch;
  Io io;
  {
    RunLock lock(io, scratch.path(), {5, 30});
    take_over(scratch);
    EXPECT_THROW(lock.check_still_owned(), Error);
    std::filesystem::remove(scratch / "LOCK");
    EXPECT_THROW(lock.check_still_owned(), Error);
    write_bytes(scratch / "LOCK", "host other\nnonce y\npid 7\n");
  }
  EXPECT_TRUE(std::filesystem::exists(scratch / "LOCK")) << "another's lock is not removed";
}

}  // namespace
}  // namespace ripstop
