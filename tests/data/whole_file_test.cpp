#include "data/whole_file.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"

namespace ripstop {
namespace {

TEST(WholeFile, ReplacesWhatWasThere) {
  const ScratchDirectory scratch;
  write_whole_file(scratch / "scores.json", "a longer text than the next");
  write_whole_file(scratch / "scores.json", std::string("new\0", 4));
  EXPECT_EQ(read_bytes(scratch / "scores.json"), std::string("new\0", 4));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

TEST(WholeFile, LeavesWhatWasThereWhereItFails) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "target/old", "old");
  EXPECT_THROW(write_whole_file(scratch / "target", "new"), Error);  // a directory stands there
  EXPECT_EQ(read_bytes(scratch / "target/old"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
  try {
    write_whole_file(scratch / "absent/file", "new");
    ADD_FAILURE() << "a file in a directory that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
  }
}

}  // namespace
}  // namespace ripstop
