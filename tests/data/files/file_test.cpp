#include "data/files/file.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/data/fault_io.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

TEST(InputFile, RefusesWhatIsNotAPlainFile) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "file", "text");
  std::filesystem::create_symlink(scratch / "file", scratch / "link");
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(InputFile(scratch / "link").bytes(), 4) << "a user may give a link";
  expect_error([&] { InputFile(posix_io(), scratch / "link"); }, ExitCode::kStorage, "not a plain file");
  expect_error([&] { InputFile(posix_io(), scratch / "pipe"); }, ExitCode::kStorage, "not a plain file");
  expect_error([&] { InputFile(scratch.path()); }, ExitCode::kInputData, "not a plain file");
  expect_error([&] { InputFile(scratch / "absent"); }, ExitCode::kInputData, "cannot open: No such file");
}

TEST(InputFile, ContinuesShortAndInterruptedReadsAndTriesAgain) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "file", "0123456789");
  for (const FaultIo::Kind kind :
       {FaultIo::Kind::kShort, FaultIo::Kind::kInterrupted, FaultIo::Kind::kError}) {
    FaultIo io;
    const InputFile file(io, scratch / "file");
    io.kind = kind;
    io.at = io.calls;
    std::string text(8, ' ');
    file.read_at(1, text.data(), 8);
    EXPECT_EQ(text, "12345678");
  }
  const InputFile file(scratch / "file");
  char byte = 0;
  expect_error([&] { file.read_at(10, &byte, 1); }, ExitCode::kInputData, "ends at byte 10");
}

TEST(OutputFile, WritesAtOffsetsAndAppends) {
  const ScratchDirectory scratch;
  {
    OutputFile file(scratch / "file");
    file.append("abc", 3);
    file.append(std::string(100'000, 'x').data(), 100'000);
    file.append("def", 3);
    file.close();
  }
  OutputFile again(scratch / "file", OutputFile::Mode::kExisting);
  again.write_at(1, "B", 1);
  again.sync();
  EXPECT_EQ(read_bytes(scratch / "file"), "aBc" + std::string(100'000, 'x') + "def");
  expect_error([&] { OutputFile(scratch / "file"); }, ExitCode::kStorage, "cannot create: File exists");
  expect_error([&] { OutputFile(scratch / "absent", OutputFile::Mode::kExisting); }, ExitCode::kStorage,
               "No such file");
}

TEST(OutputFile, SaysThatTheDiskIsFull) {
  const ScratchDirectory scratch;
  for (int64_t at = 0; at < 4; ++at) {  // open, pwrite, fsync, close
    FaultIo io(FaultIo::Kind::kError, at, ENOSPC);
    try {
      OutputFile file(io, scratch / std::to_string(at));
      file.append("abc", 3);
      file.sync();
      file.close();
      ADD_FAILURE() << "call " << at;
    } catch (const IoError& error) {
      EXPECT_EQ(error.hint(), "the disk is full");
      EXPECT_FALSE(error.is_absence());
    }
  }
}

TEST(AppendFile, CutsTheTornLineAndAppends) {
  const ScratchDirectory scratch;
  const std::string whole = "one\n" + std::string(10'000, 'x') + "\n";
  for (const std::string& torn : {std::string(), std::string("tor"), std::string(9'000, 't')}) {
    write_bytes(scratch / "log", whole + torn);
    AppendFile file(scratch / "log");
    file.append("two\n");
    file.sync();
    EXPECT_EQ(read_bytes(scratch / "log"), whole + "two\n");
    file.cut(4);
    EXPECT_EQ(read_bytes(scratch / "log"), "one\n");
  }
  write_bytes(scratch / "log", "torn alone");
  AppendFile(scratch / "log").append("first\n");
  EXPECT_EQ(read_bytes(scratch / "log"), "first\n");
}

TEST(AppendFile, ALineIsThereWholeOrNotAtAll) {
  const ScratchDirectory scratch;
  FaultIo io;
  AppendFile file(io, scratch / "log");
  file.append("one\n");
  for (const FaultIo::Kind kind : {FaultIo::Kind::kShort, FaultIo::Kind::kInterrupted}) {
    io.kind = kind;
    io.at = io.calls + 1;
    file.append("two\n");
  }
  EXPECT_EQ(read_bytes(scratch / "log"), "one\ntwo\ntwo\n");
  // A short write, then a full disk: no half line stays.
  class Full : public FaultIo {
   public:
    ssize_t write(int file, const void* bytes, size_t count) override {
      if (writes++ == 0) return Io::write(file, bytes, count / 2);
      if (another != nullptr) another->append("four\n");
      errno = ENOSPC;
      return -1;
    }
    int writes = 0;
    AppendFile* another = nullptr;  // of a process that takes over
  } full;
  AppendFile other(full, scratch / "log");
  expect_error([&] { other.append("three\n"); }, ExitCode::kStorage, "cannot write: No space");
  EXPECT_EQ(read_bytes(scratch / "log"), "one\ntwo\ntwo\n");
  full.another = &file;
  full.writes = 0;
  EXPECT_THROW(other.append("five\n"), Error);
  EXPECT_EQ(read_bytes(scratch / "log"), "one\ntwo\ntwo\nfifour\n");
}

// Two processes may have the log open while one takes over the run of the other.
TEST(AppendFile, DoesNotOverwriteTheLinesOfAnother) {
  const ScratchDirectory scratch;
  AppendFile first(scratch / "log"), second(scratch / "log");
  first.append("a\n");
  second.append("b\n");
  first.append("c\n");
  EXPECT_EQ(read_bytes(scratch / "log"), "a\nb\nc\n");
}

TEST(AppendFile, MakesNoFileThroughALink) {
  const ScratchDirectory scratch;
  std::filesystem::create_symlink(scratch / "target", scratch / "log");
  expect_error([&] { AppendFile(scratch / "log"); }, ExitCode::kStorage, "link that leads nowhere");
  EXPECT_FALSE(std::filesystem::exists(scratch / "target"));
  write_bytes(scratch / "target", "one\n");
  AppendFile(scratch / "log").append("two\n");
  EXPECT_EQ(read_bytes(scratch / "target"), "one\ntwo\n");
}

/// Whether thread `id` of this process sleeps in the kernel.
bool sleeps(pid_t id) {
  const std::string stat = read_bytes(fmt::format("/proc/self/task/{}/stat", id));
  return stat.substr(stat.rfind(')') + 2, 1) == "S";
}

// A file system that is mounted with `intr` interrupts calls, and a pipe does, too.
TEST(Io, AnOpenThatASignalInterruptsGoesOn) {
  static std::atomic<int> signals;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ++signals; };  // without SA_RESTART
  sigaction(SIGUSR1, &action, &before);
  const ScratchDirectory scratch;
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  const pid_t id = gettid();
  const pthread_t self = pthread_self();
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!sleeps(id)) std::this_thread::yield();
    pthread_kill(self, SIGUSR1);
    while (signals == 0) std::this_thread::yield();
    const int reader = ::open((scratch / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
    while (!done) std::this_thread::yield();
    ::close(reader);
  });
  Io io;
  const int file = io.open(scratch / "pipe", O_WRONLY);
  const int error = errno;
  done = true;
  other.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_GE(file, 0) << strerror(error);
  if (file >= 0) io.close(file);
}

}  // namespace
}  // namespace ripstop
