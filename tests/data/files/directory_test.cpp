#include "data/files/directory.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/data/fault_io.h"
#include "tests/data/scratch_directory.h"

namespace ripstop {
namespace {

TEST(Directory, FindBelowLooksThreeLevelsDeep) {
  const ScratchDirectory scratch;
  for (const char* name : {"x", "b/c/x", "a/b/c/x", "0/1/2/3/x", "0/blobs/x"})
    write_bytes(scratch / name, "");
  EXPECT_EQ(find_below(scratch.path(), "x"), scratch / "a/b/c")
      << "the first by name, and not the folder itself";
  EXPECT_EQ(find_below(scratch / "b", "x"), scratch / "b/c");
  EXPECT_TRUE(find_below(scratch / "b/c", "x").empty());
  EXPECT_TRUE(find_below(scratch / "absent", "x").empty());
}

TEST(Directory, ALinkToNowhereIsNamed) {
  const ScratchDirectory scratch;
  std::filesystem::create_symlink("gone", scratch / "link");
  EXPECT_EQ(hint_for_link(scratch / "link"), "it is a link to gone, which is not there");
  write_bytes(scratch / "gone", "");
  EXPECT_EQ(hint_for_link(scratch / "link"), "");
  EXPECT_EQ(hint_for_link(scratch / "absent"), "");
}

TEST(Directory, RemoveTreeRemovesEverythingBelow) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "tree/a/b/file", "x");
  write_bytes(scratch / "tree/file", "x");
  EXPECT_TRUE(remove_tree(posix_io(), scratch / "tree"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "tree"));
  EXPECT_TRUE(remove_tree(posix_io(), scratch / "tree")) << "it is gone already";
}

TEST(Directory, RemoveTreeNeverFollowsALink) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "archive/file", "x");
  std::filesystem::create_directories(scratch / "tree/below");
  std::filesystem::create_directory_symlink(scratch / "archive", scratch / "tree/below/link");
  std::filesystem::create_directory_symlink(scratch / "archive", scratch / "link");
  EXPECT_TRUE(remove_tree(posix_io(), scratch / "tree"));
  EXPECT_TRUE(remove_tree(posix_io(), scratch / "link"));
  EXPECT_FALSE(std::filesystem::is_symlink(scratch / "link"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "archive/file"));
}

TEST(Directory, RemoveTreeSaysIfSomethingStays) {
  const ScratchDirectory scratch;
  FaultIo counting;
  write_bytes(scratch / "tree/a/file", "x");
  ASSERT_TRUE(remove_tree(counting, scratch / "tree"));
  for (int64_t at = 0; at < counting.calls; ++at) {
    write_bytes(scratch / "tree/a/file", "x");
    FaultIo io(FaultIo::Kind::kError, at);
    EXPECT_FALSE(remove_tree(io, scratch / "tree")) << at;
    EXPECT_TRUE(std::filesystem::exists(scratch / "tree")) << at;
  }
}

TEST(Directory, ListsByNameAndTellsLinks) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "b", "x");
  std::filesystem::create_directories(scratch / "c");
  std::filesystem::create_directory_symlink(scratch / "c", scratch / "a");
  const auto entries = list_directory(posix_io(), scratch.path());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_TRUE(entries[0].is_link && !entries[0].is_directory);
  EXPECT_TRUE(!entries[1].is_link && !entries[1].is_directory);
  EXPECT_TRUE(!entries[2].is_link && entries[2].is_directory);
  EXPECT_TRUE(list_directory(posix_io(), scratch / "absent").empty());
}

TEST(Directory, TellsWhatExists) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "file", "x");
  std::filesystem::create_directories(scratch / "folder");
  std::filesystem::create_directory_symlink(scratch / "folder", scratch / "link");
  std::filesystem::create_symlink(scratch / "absent", scratch / "nowhere");
  const auto facts = [&](const char* name) {
    return std::pair(path_exists(posix_io(), scratch / name), directory_exists(posix_io(), scratch / name));
  };
  EXPECT_EQ(facts("file"), std::pair(true, false));
  EXPECT_EQ(facts("folder"), std::pair(true, true));
  EXPECT_EQ(facts("link"), std::pair(true, true));
  EXPECT_EQ(facts("nowhere"), std::pair(true, false));
  EXPECT_EQ(facts("absent"), std::pair(false, false));
  EXPECT_EQ(facts("file/inside"), std::pair(false, false)) << "a file holds nothing";
  FaultIo io;
  io.kind = FaultIo::Kind::kError;
  io.error = EACCES;
  EXPECT_THROW(directory_exists(io, scratch / "folder"), IoError);
  io.calls = 0;
  EXPECT_THROW(path_exists(io, scratch / "folder"), IoError);
}

TEST(Directory, TellsTheAgeAndOtherNamesOfAFile) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "file", "x");
  EXPECT_FALSE(has_hard_links(scratch / "file"));
  std::filesystem::create_hard_link(scratch / "file", scratch / "other");
  EXPECT_TRUE(has_hard_links(scratch / "file"));
  EXPECT_FALSE(has_hard_links(scratch / "none"));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(scratch / "file", now - std::chrono::seconds(1000));
  EXPECT_NEAR(age_of(scratch / "file").value(), 1000, 500);
  std::filesystem::last_write_time(scratch / "file", now + std::chrono::seconds(1000));
  EXPECT_LT(age_of(scratch / "file").value(), 0);
  EXPECT_FALSE(age_of(scratch / "none"));
}

TEST(Directory, WhatOthersMayReadIsKnownByTheKindOfFileSystem) {
  EXPECT_FALSE(may_be_shared("/dev/shm")) << "memory of this machine";
  EXPECT_TRUE(may_be_shared("/proc")) << "a kind that is not known";
  EXPECT_TRUE(may_be_shared("/nowhere"));
}

TEST(Directory, SyncContinuesAfterAnInterruptAndAcceptsFileSystemsWithoutIt) {
  const ScratchDirectory scratch;
  FaultIo io;
  io.at = 1;  // the fsync
  for (const int error : {EINVAL, EIO}) {
    io.calls = 0;
    io.kind = FaultIo::Kind::kError;
    io.error = error;
    if (error == EINVAL)
      EXPECT_NO_THROW(sync_directory(io, scratch.path()));
    else
      EXPECT_THROW(sync_directory(io, scratch.path()), IoError);
  }
  io.calls = 0;
  io.kind = FaultIo::Kind::kInterrupted;
  EXPECT_NO_THROW(sync_directory(io, scratch.path()));
  EXPECT_EQ(io.calls, 4) << "open, two fsyncs, close";
}

}  // namespace
}  // namespace ripstop
