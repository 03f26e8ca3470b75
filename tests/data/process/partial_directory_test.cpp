// The output directory of prepare: which may exist before, and what failures and kills leave.
#include "data/process/partial_directory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "data/process/child_process.h"
#include "data/process/process_identity.h"
#include "tests/data/prepare_fixture.h"

namespace ripstop {
namespace {

TEST_F(PrepareTest, AnOutputThatIsThereIsNotTouched) {
  write_bytes(scratch_ / "out/precious", "x");
  expect_refused(ExitCode::kUsage, "exists already");
  EXPECT_EQ(read_bytes(scratch_ / "out/precious"), "x");
  std::filesystem::remove_all(scratch_ / "out");
  write_bytes(scratch_ / "out", "a file");
  expect_refused(ExitCode::kUsage, "exists already");
  std::filesystem::remove(scratch_ / "out");
  std::filesystem::create_directory(scratch_ / "out");
  EXPECT_EQ(prepare(options_).splits[0].examples, 2);  // an empty directory may be replaced
  options_.output = scratch_ / "tokenizer.model/out";
  expect_refused(ExitCode::kStorage, "cannot make");
}

// A failed prepare removes the parents that it made.
TEST_F(PrepareTest, ParentsThatWereMadeGoWithARefusedOutput) {
  options_.output = scratch_ / "a/b/out";
  options_.source.inputs = {scratch_ / "absent"};
  expect_refused(ExitCode::kInputData, "no such file");
  options_.source.inputs = {scratch_ / "c"};
  prepare(options_);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "a/b/out/train.h5"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a/b/out/OWNER"));
}

/// The notes of prepare about directories that killed processes left.
class LeftoverTest : public PrepareTest {
 protected:
  LeftoverTest() {
    options_.note = [&](const std::string& note) { notes_ += note + "\n"; };
  }
  /// A partial directory of `owner`.
  std::filesystem::path leave(const std::string& name, const ProcessIdentity& owner) {
    write_bytes(scratch_ / name / "train.h5", "half");
    if (!owner.empty()) write_bytes(scratch_ / name / "OWNER", to_text(owner));
    return scratch_ / name;
  }
  std::string notes_;
};

TEST_F(LeftoverTest, WhatAKilledProcessLeftIsRemoved) {
  PrepareOptions killed = options_;
  killed.source = {};
  killed.source.kind = SourceKind::kSynthetic;
  killed.source.examples = 100000;
  killed.progress = [](const PrepareProgress&) { kill(getpid(), SIGKILL); };
  // run_in_child throws: the child was killed.
  EXPECT_THROW(run_in_child([&] { return prepare(killed).tokenizer_sha256; }, [] { return false; }), Error);
  const auto left = [&] {
    int count = 0;
    for (const auto& path : listing()) count += path.filename().string().starts_with("out.partial-");
    return count;
  };
  ASSERT_EQ(left(), 1);
  prepare(options_);
  EXPECT_EQ(left(), 0);
  EXPECT_HAS(notes_, "removed " + (scratch_ / "out.partial-").string());
  EXPECT_HAS(notes_, "was killed before it was done");
}

TEST_F(LeftoverTest, WhatMayBeInUseIsOnlyMentioned) {
  ProcessIdentity elsewhere = this_process();
  elsewhere["host"] = "node7";
  elsewhere["pid"] = "4711";
  elsewhere["started"] = "1";
  leave("out.partial-4711", elsewhere);
  leave("out.partial-5", {});  // without a known owner
  leave("output.partial-6", elsewhere);
  prepare(options_);
  for (const char* name : {"out.partial-4711", "out.partial-5", "output.partial-6"})
    EXPECT_TRUE(std::filesystem::exists(scratch_ / name / "train.h5")) << name;
  EXPECT_HAS(notes_, "out.partial-4711 was left by process 4711 on node7; if that has ended: rm -r");
  EXPECT_HAS(notes_, "out.partial-5 was left by an unknown process");
  EXPECT_EQ(notes_.find("output"), std::string::npos) << notes_;
}

// In containers, every prepare may have the same pid.
TEST_F(LeftoverTest, ALeftoverOfTheSameNumberIsNotInTheWay) {
  ProcessIdentity before = this_process();
  before["started"] = "1";
  const std::string name = fmt::format("out.partial-{}", getpid());
  leave(name, before);
  prepare(options_);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / name)) << notes_;
  before["host"] = "node7";
  leave(fmt::format("other.partial-{}", getpid()), before);
  options_.output = scratch_ / "other";
  prepare(options_);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "other/train.h5"));
}

TEST_F(LeftoverTest, TwoAtOnceForOneOutputAreRefused) {
  leave("out.partial-1", this_process());
  expect_refused(ExitCode::kUsage, "makes it now");
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "out.partial-1/train.h5"));
}

/// Notes the calls that decide what a power loss leaves.
class NotingIo : public Io {
 public:
  std::vector<std::string> calls;

  int open(const std::filesystem::path& path, int flags) override {
    opened_ = path.filename();
    return Io::open(path, flags);
  }
  int fsync(int file) override {
    calls.push_back("sync " + opened_);
    return Io::fsync(file);
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    calls.push_back("rename to " + to.filename().string());
    return Io::rename(from, to);
  }

 private:
  std::string opened_;
};

TEST(PartialDirectoryOrder, APowerLossLeavesTheWholeOutputOrNone) {
  const ScratchDirectory scratch;
  NotingIo io;
  PartialDirectory directory(io, scratch / "out");
  io.calls.clear();
  directory.rename_to_output();
  EXPECT_EQ(io.calls, (std::vector<std::string>{"sync content", "rename to out",
                                                "sync " + scratch.path().filename().string()}));
}

// Neither may have seen the directory of the other when it looked for leftovers.
TEST(PartialDirectoryOfTwo, OneOfTwoThatBeginAtTheSameMomentGoesOn) {
  const ScratchDirectory scratch;
  Io io;
  for (int round = 0; round < 30; ++round) {
    const std::filesystem::path output = scratch / fmt::format("out{}", round);
    std::barrier begin(2);
    std::atomic<int> made = 0, refused = 0;
    const auto make = [&] {
      begin.arrive_and_wait();
      try {
        make_partial_directory(io, output);
        ++made;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
        ++refused;
      }
    };
    std::thread other(make);
    make();
    other.join();
    EXPECT_EQ(made, 1);
    EXPECT_EQ(refused, 1);
  }
}

}  // namespace
}  // namespace ripstop
