#include "train/report/log_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class LogWriterTest : public ::testing::Test {
 protected:
  /// Writes a line and waits until it is there.
  static void write(LogWriter& log, const std::string& line) {
    log.add(line);
    log.sync();
  }
  /// Returns the first note, within 20 s.
  static std::string note(LogWriter& log) {
    for (int look = 0; look < 4000; ++look) {
      if (const std::vector<std::string> notes = log.take_notes(); !notes.empty()) return notes.front();
      usleep(5000);
    }
    return "";
  }
  std::string text() const { return read_bytes(path_); }
  /// The Error(kStorage) of a line behind a full queue; "" if there is none.
  std::string error_of_full_queue() const {
    LogWriter log(path_, rights_);
    log.add(std::string(LogWriter::kMostWaitingBytes, 'x') + "\n");
    return what_of([&] { log.add("y\n"); }, ExitCode::kStorage);
  }

  ScratchDirectory scratch_;
  fs::path path_ = scratch_ / "metrics.jsonl";
  std::atomic<bool> may_write_ = true, is_owner_ = true;
  LogRights rights_{.may_write = [this] { return may_write_.load(); },
                    .check_owner =
                        [this] {
                          if (!is_owner_) throw Error(ExitCode::kStorage, "taken over");
                        },
                    .patience_seconds = 1};
};

TEST_F(LogWriterTest, LinesWaitInOrderUntilTheyMayBeWritten) {
  LogWriter log(path_, rights_);
  write(log, "a\n");
  may_write_ = false;
  log.add("b\n");
  log.add("c\n");
  for (int tries = 0; tries < 2; ++tries) {
    expect_error([&] { log.sync(); }, ExitCode::kStorage,
                 "does not answer: this process waited 1 s for the storage, and 2 lines are not there");
  }
  EXPECT_EQ(text(), "a\n");
  EXPECT_TRUE(log.take_back());
  log.add("d\n");
  EXPECT_EQ(log.waiting_lines(), 2);
  may_write_ = true;
  while (log.waiting_lines() > 0) usleep(1000);
  write(log, "e\n");
  EXPECT_EQ(text(), "a\nb\nd\ne\n");
  EXPECT_FALSE(log.take_back());
}

TEST_F(LogWriterTest, AFullQueueWaitsAndSaysStorage) {
  may_write_ = false;
  EXPECT_HAS(error_of_full_queue(), "waited 1 s for the storage");
}

// Each failed attempt is work of the thread, so the patience for a thread that does nothing never ends.
TEST_F(LogWriterTest, AFullQueueWhoseWritesFailThrowsTheirError) {
  rights_.may_write = []() -> bool { throw Error(ExitCode::kStorage, "the disk is full"); };
  EXPECT_EQ(error_of_full_queue(), "the disk is full");
}

TEST_F(LogWriterTest, ARemovedFileIsMadeAgainWithAllLines) {
  LogWriter log(path_, rights_);
  write(log, "a\n");
  write(log, "b\n");
  fs::remove(path_);
  EXPECT_HAS(note(log), "was removed: the log goes on in a new file, which got the 2 lines that it lacked");
  write(log, "c\n");
  EXPECT_EQ(text(), "a\nb\nc\n");
}

// An editor's change stays, and the lines that were written while it had the file are appended.
TEST_F(LogWriterTest, AReplacedFileGetsTheLinesThatItLacks) {
  LogWriter log(path_, rights_);
  for (const char* line : {"a\n", "b\n", "c\n"}) write(log, line);
  write_bytes(scratch_ / "edited", "A\nb\nhalf");
  fs::rename(scratch_ / "edited", path_);
  write(log, "d\n");
  EXPECT_EQ(text(), "A\nb\nc\nd\n");
  EXPECT_HAS(note(log), "was replaced: the log goes on in the file that is there now, which got the ");
  EXPECT_TRUE(log.take_notes().empty());
}

// A process that another start took the run over from must not write into the other's log.
TEST_F(LogWriterTest, TheLogOfAnotherOwnerGetsNoLine) {
  {
    LogWriter log(path_, rights_);
    write(log, "a\n");
    is_owner_ = false;
    write_bytes(scratch_ / "theirs", "x\n");
    fs::rename(scratch_ / "theirs", path_);
    log.add("b\n");
    EXPECT_THROW(log.sync(), Error);
  }
  EXPECT_EQ(text(), "x\n");
}

TEST_F(LogWriterTest, ADirectoryInItsPlaceLosesNoLine) {
  LogWriter log(path_, rights_);
  write(log, "a\n");
  fs::remove(path_);
  fs::create_directory(path_);
  log.add("b\n");
  EXPECT_THROW(log.sync(), Error);
  EXPECT_TRUE(log.trouble());
  fs::remove(path_);
  write(log, "c\n");
  EXPECT_EQ(text(), "a\nb\nc\n");
  EXPECT_FALSE(log.trouble());
}

}  // namespace
}  // namespace ripstop
