#include "data/files/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "model/core/error.h"
#include "tests/data/fault_io.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

TEST(WholeFile, ReplacesTheOldFile) {
  const ScratchDirectory scratch;
  write_whole_file(scratch / "scores.json", "a longer text than the next");
  write_whole_file(scratch / "scores.json", std::string("new\0", 4));
  EXPECT_EQ(read_bytes(scratch / "scores.json"), std::string("new\0", 4));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

TEST(WholeFile, KeepsWhatIsThereIfItFails) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "target/old", "old");
  EXPECT_THROW(write_whole_file(scratch / "target", "new"), Error);  // a directory has the name
  EXPECT_EQ(read_bytes(scratch / "target/old"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
  expect_error([&] { write_whole_file(scratch / "absent/file", "new"); }, ExitCode::kStorage);
}

TEST(WholeFile, IsTheOldFileOrTheNewOneWhateverFails) {
  const ScratchDirectory scratch;
  FaultIo counting;
  write_whole_file(counting, scratch / "file", "old");
  int64_t failed = 0;
  for (const FaultIo::Kind kind : {FaultIo::Kind::kError, FaultIo::Kind::kInterrupted, FaultIo::Kind::kShort})
    for (int64_t at = 0; at < counting.calls; ++at) {
      write_whole_file(scratch / "file", "old");
      FaultIo io(kind, at);
      bool written = true;
      try {
        write_whole_file(io, scratch / "file", "new");
      } catch (const IoError&) {
        written = false;
        ++failed;
        EXPECT_EQ(kind, FaultIo::Kind::kError);
      }
      const std::string text = read_bytes(scratch / "file");
      EXPECT_TRUE(text == "new" || (!written && text == "old")) << text << ", call " << at;
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1) << "call " << at;
    }
  // At least one fault must have met a call.
  EXPECT_GT(failed, 4);
}

TEST(WholeFile, ReadsFilesOfAnyKindThatAUserGives) {
  const ScratchDirectory scratch;
  const std::string text(100'000, 'x');
  write_bytes(scratch / "file", text);
  std::filesystem::create_symlink(scratch / "file", scratch / "link");
  EXPECT_EQ(read_whole_file(scratch / "link", 100'000, ExitCode::kUsage), text);
  EXPECT_THROW(read_whole_file(scratch / "link", 99'999, ExitCode::kUsage), Error);
  EXPECT_GT(read_whole_file("/proc/self/maps", 1 << 30, ExitCode::kUsage).size(), 0u) << "its size says 0";
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { write_bytes(scratch / "pipe", text); });
  EXPECT_EQ(read_whole_file(scratch / "pipe", 100'000, ExitCode::kUsage), text);
  writer.join();
  EXPECT_EQ(read_plain_file(scratch / "link", 100'000, ExitCode::kUsage), text);
  EXPECT_THROW(read_plain_file(scratch / "link", 99'999, ExitCode::kUsage), Error);
  EXPECT_THROW(read_plain_file(scratch / "pipe", 100'000, ExitCode::kUsage), Error);
  // The overload for ripstop's own files refuses links, too.
  EXPECT_EQ(read_whole_file(posix_io(), scratch / "file", 100'000), text);
  EXPECT_THROW(read_whole_file(posix_io(), scratch / "file", 99'999), Error);
  EXPECT_THROW(read_whole_file(posix_io(), scratch / "link", 100'000), Error);
}

TEST(WholeFile, FirstLine) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "file", "one\ntwo\n");
  write_bytes(scratch / "empty", "");
  EXPECT_EQ(first_line(scratch / "file"), "one");
  EXPECT_EQ(first_line(scratch / "empty"), "");
  EXPECT_EQ(first_line(scratch / "absent"), "");
  EXPECT_EQ(first_line("/proc/self/stat").find(std::to_string(getpid())), 0u);
}

}  // namespace
}  // namespace ripstop
