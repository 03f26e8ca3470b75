// SharedDirectory: the fixture of tests of all ranks with a temporary directory.
#pragma once
#include <filesystem>
#include <optional>

#include "parallel/agreement.h"
#include "tests/data/scratch_directory.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {

/// All ranks have the path of the directory; rank 0 makes, fills and removes it.
class SharedDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    Communicator& world = test_world().communicator();
    if (world.rank() == 0) fill(scratch_.emplace().path());
    directory_ = text_of_rank_0(world, scratch_ ? scratch_->path().string() : "");
  }
  void TearDown() override { test_world().communicator().barrier(); }
  /// Writes what the tests read.
  virtual void fill(const std::filesystem::path& directory) = 0;

  std::filesystem::path directory_;

 private:
  std::optional<ScratchDirectory> scratch_;
};

}  // namespace ripstop
