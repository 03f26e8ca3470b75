// The checkpoints that a takeover fences off, and the refusals of their readers.
#include "train/checkpoint/takeovers.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "data/text/json_struct.h"
#include "tests/data/fault_io.h"
#include "tests/expect_error.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/verify.h"
#include "train/exchange/read/open_model.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

/// Sets the variables of a Slurm job while it lives.
class JobVariables {
 public:
  JobVariables(const char* job, const char* restart, const char* array = nullptr) {
    setenv("SLURM_JOB_ID", job, 1);
    setenv("SLURM_RESTART_COUNT", restart, 1);
    if (array != nullptr) setenv("SLURM_ARRAY_JOB_ID", array, 1);
  }
  ~JobVariables() {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_ARRAY_JOB_ID"}) unsetenv(name);
  }
};

Takeovers takeovers_from(std::initializer_list<int64_t> steps) {
  Takeovers takeovers;
  for (const int64_t step : steps) takeovers.add(step, 0);
  return takeovers;
}

TEST(Takeovers, ALaterTakeoverFromAnEarlierStepRefuses) {
  const Takeovers takeovers = takeovers_from({0, 20, 40, 30});
  struct Case {
    int64_t step, number;
    bool refused;
  };
  for (const Case& c : {Case{20, 1, false},  // what takeover 2 took
                        {21, 1, true},
                        {10, 1, false},
                        {40, 2, true},  // takeover 4 went back to 30
                        {30, 2, false},
                        {40, 3, true},
                        {30, 3, false},
                        {99, 4, false},  // the newest owner's
                        {99, 7, false},  // copied from elsewhere: above all that are known
                        {0, 0, false},
                        {20, 0, true},  // takeover 1 began at 0
                        {25, 0, true}})
    EXPECT_EQ(!takeovers.refusal(c.step, c.number).empty(), c.refused)
        << "step " << c.step << " of takeover " << c.number;
  const std::string text = takeovers.refusal(25, 1);
  EXPECT_HAS(text, "by takeover 1, but takeover 2 (process ");
  EXPECT_HAS(text, ") had gone on from step 20");
}

TEST(Takeovers, TheStepsOfTheLastTwoAreInOrder) {
  const ScratchDirectory scratch;
  Io io;
  EXPECT_TRUE(last_takeover_steps(io, scratch.path()).empty());
  fs::create_directories(scratch / "checkpoints");
  takeovers_from({0}).write(io, scratch / "checkpoints");
  EXPECT_EQ(last_takeover_steps(io, scratch.path()), (std::vector<int64_t>{0}));
  takeovers_from({0, 20, 40, 30}).write(io, scratch / "checkpoints");
  EXPECT_EQ(last_takeover_steps(io, scratch.path()), (std::vector<int64_t>{30, 40}));
}

TEST(Takeovers, AFolderWithoutTheFileRefusesNothing) {
  ScratchDirectory scratch;
  QuickIo io;
  const Takeovers none = Takeovers::read(io, scratch.path());
  EXPECT_EQ(none.problem(), "");
  EXPECT_EQ(none.refusal(99, 1), "");
}

TEST(Takeovers, TheFileHoldsWhatWasWritten) {
  ScratchDirectory scratch;
  QuickIo io;
  Takeovers takeovers;
  {
    const JobVariables job("4712", "2", "4711");
    takeovers.add(0, 0);
  }
  takeovers.add(20, 6);
  takeovers.write(io, scratch.path());
  const Takeovers read = Takeovers::read(io, scratch.path());
  EXPECT_EQ(read.all(), takeovers.all());
  EXPECT_EQ(read.all()[0].job, "4711");
  EXPECT_EQ(read.all()[0].restart, 2);
  EXPECT_EQ(read.newest_number(), 7) << "above the greatest of the checkpoints";
  EXPECT_EQ(read.all()[1].job, "");
}

// A damaged takeovers.json must not block a run: it protects against rare accidents only.
TEST(Takeovers, ADamagedFileIsNone) {
  ScratchDirectory scratch;
  QuickIo io;
  takeovers_from({0, 20}).write(io, scratch.path());
  const std::string whole = read_bytes(scratch / Takeovers::kFileName);
  std::string swapped = whole;
  swapped.replace(swapped.find("\"number\": 2"), 11, "\"number\": 1");
  std::string digit = whole;
  digit.replace(digit.find("\"step\": 20"), 10, "\"step\": 0");
  for (const std::string& bad :
       {digit, std::string(), whole.substr(0, whole.size() / 2), std::string("[]"), std::string("{}"),
        swapped, std::string(200, '\0'), std::string("{\"format\":\"ripstop checkpoint\"}")}) {
    write_bytes(scratch / Takeovers::kFileName, bad);
    const Takeovers read = Takeovers::read(io, scratch.path());
    EXPECT_TRUE(read.all().empty()) << bad;
    EXPECT_HAS(read.problem(), Takeovers::kFileName);
  }
}

TEST(Takeovers, KeepTheChangesOfTheConfig) {
  ScratchDirectory scratch;
  QuickIo io;
  const ConfigDifference rate{.key = "optimizer.learning_rate", .old_value = "0.1", .new_value = "0.2"},
      kind{.key = "schedule.kind", .old_value = "\"cosine\"", .new_value = "\"wsd\""};
  Takeovers takeovers = takeovers_from({0});
  takeovers.add(20, 0, {rate});
  takeovers.add(20, 0, {kind});
  takeovers.write(io, scratch.path());
  const Takeovers read = Takeovers::read(io, scratch.path());
  EXPECT_EQ(read.problem(), "");
  EXPECT_EQ(read.changes_after(0), (std::vector{rate, kind}));
  EXPECT_EQ(read.changes_after(2), std::vector{kind});
  EXPECT_TRUE(read.changes_after(3).empty());
}

// Numbers whose successor would overflow, in a file with the right hash; and a file of an older ripstop.
TEST(Takeovers, HostileNumbersAndAnOldFileAreNone) {
  ScratchDirectory scratch;
  QuickIo io;
  takeovers_from({0, 20}).write(io, scratch.path());
  const auto whole = nlohmann::ordered_json::parse(read_bytes(scratch / Takeovers::kFileName));
  const auto problem_with = [&](const char* pointer, const auto& value) {
    nlohmann::ordered_json changed = whole;
    changed.erase("hash");
    changed[nlohmann::ordered_json::json_pointer(pointer)] = value;
    write_bytes(scratch / Takeovers::kFileName, sealed_text(changed));
    return Takeovers::read(io, scratch.path()).problem();
  };
  EXPECT_EQ(problem_with("/takeovers/1/number", 3), "");
  EXPECT_HAS(problem_with("/takeovers/1/number", INT64_MAX), "'number' must be a whole number from 1 to");
  EXPECT_HAS(problem_with("/version", 2), "was written by an older ripstop, in version 2");
  EXPECT_EQ(problem_with("/version", 4), "");
  // An escape sequence must not reach the terminal of somebody who lists the checkpoints.
  EXPECT_EQ(problem_with("/takeovers/0/owner",
                         "a\x1b[2J\xc2\x9b"
                         "b"),
            "");
  EXPECT_EQ(Takeovers::read(io, scratch.path()).all()[0].owner, "a [2J  b");
  EXPECT_EQ(problem_with("/takeovers/1/number", FieldReader::kMost), "");
  Takeovers most = Takeovers::read(io, scratch.path());
  EXPECT_THROW(most.add(20, 0), Error) << "no reader would accept a greater number";
}

TEST(Takeovers, ALostEntryComesBackInItsPlace) {
  Takeovers takeovers = takeovers_from({0, 20, 30});
  const std::vector<Takeover> all = takeovers.all();
  for (const Takeover& each : all) {
    Takeovers without;
    for (const Takeover& other : all)
      if (other.number != each.number) without.restore(other);
    without.restore(each);
    without.restore(each);
    EXPECT_EQ(without.all(), all);
  }
}

TEST(Takeovers, RestartsOfOneJobAreCounted) {
  Takeovers takeovers;
  takeovers.add(20, 0);
  EXPECT_EQ(takeovers.restarts_from(20), 0) << "a person at a terminal may try as often as they like";
  {
    const JobVariables job("1", "0");
    takeovers.add(20, 0);
    EXPECT_EQ(takeovers.restarts_from(20), 0) << "the job's first start is no restart";
    takeovers.add(20, 0);
    takeovers.add(20, 0);
    EXPECT_EQ(takeovers.restarts_from(20), 2);
    EXPECT_EQ(takeovers.restarts_from(25), 0) << "a step was committed";
    takeovers.add(25, 0);
    EXPECT_EQ(takeovers.restarts_from(25), 1);
    EXPECT_EQ(takeovers.restarts_from(20), 0) << "not in a row";
  }
  const JobVariables another("2", "0");
  EXPECT_EQ(takeovers.restarts_from(25), 0);
}

TEST(Takeovers, TheFolderOfACheckpoint) {
  for (const char* path : {"run/checkpoints/step_00000001", "run/checkpoints/step_00000001/"})
    EXPECT_EQ(fs::absolute(folder_of_checkpoint(path)), fs::absolute("run/checkpoints"));
  EXPECT_EQ(folder_of_checkpoint("."), fs::current_path().parent_path());
  EXPECT_EQ(folder_of_checkpoint("step_00000001"), fs::current_path());
}

/// A run whose owner, takeover 1, saved steps 10 and 20, and was cut off; takeover 2 went on from 20.
class LateCommits : public testing::Test {
 protected:
  void SetUp() override {
    take_over(0);
    commit(10, 1);
    commit(20, 1);
    take_over(20);
  }
  void take_over(int64_t step) {
    Takeovers takeovers = Takeovers::read(io_, folder());
    takeovers.add(step, 0);
    fs::create_directories(folder());
    takeovers.write(io_, folder());
  }
  /// Saves as the takeover `number`; returns the error.
  std::string commit(int64_t step, int64_t number, const SavePolicy& policy = {.keep = 0}) {
    run_.fill(step);
    CheckpointState state = state_at(step, run_.model());
    state.takeover = number;
    report_ = {};
    for (const auto& error : run_.save(io_, folder(), state, policy, &report_))
      if (error) return error->what();
    return "";
  }
  std::vector<int64_t> usable() {
    std::vector<int64_t> steps;
    for (const ListedCheckpoint& listed : list_checkpoints(io_, folder()))
      if (listed.manifest) steps.push_back(listed.step);
    return steps;
  }
  bool exists(int64_t step) { return fs::exists(directory(step)); }
  fs::path folder() const { return scratch_ / "run/checkpoints"; }
  fs::path directory(int64_t step) const { return folder() / step_directory_name(step); }
  /// The step from which a start goes on; 0: the initial weights, -1: the start is refused.
  int64_t resume() {
    warnings_.clear();
    int64_t step = 0;
    const auto errors = SimulatedRanks(run_.mesh().ranks()).run([&](Communicator& world) {
      RankMemory& own = run_.ranks()[static_cast<size_t>(world.rank())];
      std::vector<std::string> warnings;
      const auto state = resume_newest(
          io_, folder(), world, [](const Checkpoint&) {}, loading_into(io_, own), warnings);
      if (world.rank() != 0) return;
      for (const std::string& text : warnings) warnings_ += text + "\n";
      if (state) step = state->step;
    });
    for (const auto& error : errors)
      if (error) {
        EXPECT_EQ(error->code(), ExitCode::kStorage);
        refusal_ = error->what();
        return -1;
      }
    return step;
  }

  QuickIo io_;
  ScratchDirectory scratch_;
  SmallRun run_{tiny_model(), {1, 2, 1}};
  SaveReport report_;
  std::string warnings_, refusal_;
};

using StepList = std::vector<int64_t>;

TEST_F(LateCommits, AreNeverTaken) {
  ASSERT_EQ(commit(25, 1), "") << "its rename was under way when it was cut off";
  EXPECT_EQ(usable(), (StepList{10, 20}));
  EXPECT_EQ(resume(), 20);
  EXPECT_HAS(warnings_, "step_00000025: was committed by takeover 1, but takeover 2");
  EXPECT_TRUE(exists(25)) << "it is not damaged, and not moved aside";
  EXPECT_EQ(find_checkpoint(io_, scratch_ / "run", "latest"), directory(20));
  // Named by its step, by its path, and by "." from inside.
  for (const fs::path& path :
       {find_checkpoint(io_, scratch_ / "run", "25"), directory(25), directory(25) / ""}) {
    expect_error([&] { open_stored_model(io_, path); }, ExitCode::kStorage, "by takeover 1, but takeover 2",
                 "move " + (folder() / Takeovers::kFileName).string() + " away");
    EXPECT_FALSE(look_at_checkpoint(io_, path).manifest);
  }
  const auto found = verify_checkpoint(io_, directory(25));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].file, Manifest::kFileName);
  EXPECT_TRUE(verify_checkpoint(io_, directory(20)).empty());
  ASSERT_EQ(commit(30, 2), "");
  EXPECT_EQ(resume(), 30);
}

TEST_F(LateCommits, ACopyWithAnOlderNumberIsRefused) {
  ASSERT_EQ(commit(30, 2), "");
  fs::copy(directory(30), scratch_ / "kept", fs::copy_options::recursive);
  take_over(20);  // takeover 3: step 30 was found damaged, say
  ASSERT_EQ(commit(26, 3), "");
  EXPECT_EQ(resume(), 26);
  fs::remove_all(directory(30));
  fs::copy(scratch_ / "kept", directory(30), fs::copy_options::recursive);
  EXPECT_EQ(resume(), 26);
  // The same through a link in the folder.
  fs::remove_all(directory(30));
  fs::create_directory_symlink(scratch_ / "kept", directory(30));
  EXPECT_EQ(resume(), 26);
  EXPECT_HAS(warnings_, "by takeover 2, but takeover 3");
}

// Runs that link to one folder share its numbers. A copy of the folder has numbers of its own.
TEST_F(LateCommits, TheNumbersBelongToTheFolder) {
  ASSERT_EQ(commit(25, 1), "");
  fs::create_directories(scratch_ / "other");
  fs::create_directory_symlink(folder(), scratch_ / "other/checkpoints");
  EXPECT_EQ(find_checkpoint(io_, scratch_ / "other", "latest").filename(), "step_00000020");
  fs::create_directories(scratch_ / "copy");
  fs::copy(folder(), scratch_ / "copy/checkpoints", fs::copy_options::recursive);
  fs::copy(scratch_ / "run/checkpoints", scratch_ / "alone", fs::copy_options::recursive);
  fs::remove(scratch_ / "alone" / Takeovers::kFileName);
  EXPECT_EQ(find_checkpoint(io_, scratch_ / "copy/checkpoints", "latest").filename(), "step_00000020");
  EXPECT_EQ(find_checkpoint(io_, scratch_ / "alone", "latest").filename(), "step_00000025");
}

// An owner that is cut off must not undo what the next one has committed.
TEST_F(LateCommits, ReplaceNoCheckpointOfALaterTakeover) {
  ASSERT_EQ(commit(25, 2), "");
  EXPECT_HAS(commit(25, 1), "was committed by takeover 2, this is takeover 1");
  EXPECT_EQ(read_manifest(io_, directory(25)).state.takeover, 2);
  EXPECT_EQ(usable(), (StepList{10, 20, 25}));
  for (const auto& entry : fs::directory_iterator(folder()))
    EXPECT_NE(entry.path().filename().string().front(), '.') << entry.path();
  EXPECT_EQ(commit(25, 2), "") << "its own may be saved again";
  // The successor may replace the checkpoint that came late.
  ASSERT_EQ(commit(27, 1), "");
  ASSERT_EQ(commit(27, 2), "");
  EXPECT_EQ(usable(), (StepList{10, 20, 25, 27}));
}

TEST_F(LateCommits, ReplaceNoCheckpointOfAnotherFormatAndNoneThatCannotBeRead) {
  ASSERT_EQ(commit(25, 1), "");
  const fs::path path = directory(25) / Manifest::kFileName;
  auto later = nlohmann::ordered_json::parse(read_bytes(path));
  later["version"] = later["min_reader"] = Manifest::kVersion + 1;
  later.erase("hash");
  write_bytes(path, sealed_text(later));
  EXPECT_HAS(commit(25, 2), "needs a ripstop that reads version");
  EXPECT_TRUE(exists(25));
  struct LockedManifests : Io {
    int open(const fs::path& file, int flags) override {
      const bool refused = file.filename() == Manifest::kFileName && (flags & O_ACCMODE) == O_RDONLY;
      if (refused) errno = EACCES;
      return refused ? -1 : Io::open(file, flags);
    }
  } locked;
  const auto errors = run_.save(locked, folder(), state_at(25, run_.model()));
  ASSERT_TRUE(errors.front());
  EXPECT_HAS(errors.front()->what(), "manifest.json: cannot open: Permission denied");
  EXPECT_TRUE(exists(25));
}

// Old checkpoints stay if another process takes over between the commit and their removal: it may need them.
TEST_F(LateCommits, RemoveNothingAfterATakeover) {
  int asked = 0;
  const auto check = [&] {
    if (++asked == 2) fail(ExitCode::kStorage, "taken over");
  };
  EXPECT_EQ(commit(25, 1, {.keep = 1, .check_owner = check}), "") << "it was committed before";
  ASSERT_EQ(report_.warnings.size(), 1U);
  EXPECT_HAS(report_.warnings[0], "old checkpoints were not removed: taken over");
  EXPECT_EQ(usable(), (StepList{10, 20}));
}

TEST_F(LateCommits, GoWhenTheRunHasPassedThem) {
  ASSERT_EQ(commit(25, 1), "");
  ASSERT_EQ(commit(22, 2, {.keep = 1}), "");
  EXPECT_EQ(usable(), (StepList{22})) << "they do not count as kept";
  EXPECT_TRUE(exists(25));
  ASSERT_EQ(commit(30, 2, {.keep = 1}), "");
  EXPECT_FALSE(exists(25));
  ASSERT_FALSE(report_.warnings.empty());
  EXPECT_HAS(report_.warnings[0],
             "removed a checkpoint: " + directory(25).string() + ": was committed by takeover 1");
}

// takeovers.json may be another run's: what it supersedes goes only when checkpoint.keep would remove it.
TEST_F(LateCommits, AreNotDeletedOnTheWordOfTheFileAlone) {
  ASSERT_EQ(commit(25, 1), "");
  ASSERT_EQ(commit(26, 2, {.keep = 2}), "");
  EXPECT_EQ(usable(), (StepList{20, 26}));
  EXPECT_TRUE(exists(25));
  ASSERT_EQ(commit(27, 1), "");
  ASSERT_EQ(commit(27, 2, {.keep = 2}), "");
  EXPECT_EQ(usable(), (StepList{26, 27}));
  EXPECT_FALSE(exists(25));
  const auto aside = list_aside(io_, folder());
  ASSERT_EQ(aside.size(), 1U) << "the run saved step 27 itself";
  EXPECT_TRUE(aside[0].is_superseded);
  EXPECT_EQ(read_manifest(io_, aside[0].directory).state.takeover, 1);
  EXPECT_EQ(resume(), 27);
  ASSERT_EQ(commit(28, 2, {.keep = 2}), "");
  EXPECT_EQ(list_aside(io_, folder()).size(), 1U);
  ASSERT_EQ(commit(29, 2, {.keep = 2}), "");
  EXPECT_TRUE(list_aside(io_, folder()).empty());
}

TEST_F(LateCommits, TheFirstWeightsAreNeverTakenInPlaceOfACheckpointThatIsGone) {
  ASSERT_EQ(commit(25, 1), "");
  for (const int64_t step : {10, 20}) fs::remove_all(directory(step));
  EXPECT_EQ(resume(), -1);
  EXPECT_HAS(refusal_, "the checkpoint of step 20, from which takeover 2 went on, is gone");
  fs::remove(folder() / Takeovers::kFileName);
  EXPECT_EQ(resume(), 25) << "as the hint says";
}

TEST_F(LateCommits, ARunThatBeganAnewBeginsAnew) {
  fs::remove_all(folder());
  take_over(0);
  take_over(0);  // the first one was cut off before its first save
  ASSERT_EQ(commit(10, 1), "");
  EXPECT_EQ(resume(), 0);
  EXPECT_HAS(warnings_, "by takeover 1, but takeover 2");
}

}  // namespace
}  // namespace ripstop
