// Saves of whole runs: beside training with and without copies, while training waits, and on a full disk.
#include <chrono>
#include <map>
#include <thread>

#include "data/files/whole_file.h"
#include "tests/train/run/full_disk.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/takeovers.h"
#include "train/checkpoint/verify.h"
#include "train/run/run_status.h"

namespace ripstop {
namespace {

class SavingRuns : public FullDiskRuns {
 protected:
  static inline const std::string kWaits = "checkpoint.asynchronous=false",
                                  kCopies = "checkpoint.asynchronous=true",
                                  kPieces = "checkpoint.snapshot_mib=0";

  /// All files of the run's checkpoints, without the config's settings for saves in the manifests.
  std::map<std::string, std::string> files() const {
    Io io;
    std::map<std::string, std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(scratch_ / "run" / "checkpoints")) {
      // takeovers.json has the times of starts.
      if (entry.is_directory() || entry.path().filename() == Takeovers::kFileName) continue;
      const std::string name = std::filesystem::relative(entry.path(), scratch_ / "run").string();
      if (entry.path().filename() != Manifest::kFileName) {
        files[name] = read_whole_file(entry.path(), int64_t{1} << 26, ExitCode::kStorage);
        continue;
      }
      Manifest manifest = read_manifest(io, entry.path().parent_path());
      manifest.state.config.clear();
      files[name] = manifest_text(manifest);
    }
    return files;
  }
  std::vector<int64_t> saved_steps() const {
    std::vector<int64_t> steps;
    Io io;
    for (const ListedCheckpoint& listed : list_checkpoints(io, scratch_ / "run" / "checkpoints")) {
      EXPECT_TRUE(verify_checkpoint(io, listed.directory).empty()) << listed.directory;
      steps.push_back(listed.step);
    }
    return steps;
  }
  /// Also works after a failed run.
  void forget_run() {
    disk_.reset();
    on_line_ = {};
    std::filesystem::remove_all(scratch_ / "run");
  }
};

TEST_F(SavingRuns, AllWaysToSaveWriteTheSameFiles) {
  std::map<std::string, std::string> expected;
  std::vector<double> losses;
  for (const std::string& mode : {kWaits, kCopies, kPieces}) {
    SCOPED_TRACE(mode);
    // With a save every step, each is due while another is under way.
    ASSERT_EQ(train(ten_steps({mode, "checkpoint.every_steps=1", "checkpoint.keep=0"})), ExitCode::kOk);
    EXPECT_EQ(saved_steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    const MetricsLog log = metrics("run");
    ASSERT_EQ(log.checkpoints.size(), 10U);
    ASSERT_EQ(log.saves.size(), 10U);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(log.saves[i].step, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(log.saves[i].state, SaveState::kBegun);
      EXPECT_EQ(log.checkpoints[i].step, static_cast<int64_t>(i) + 1);
      EXPECT_LE(log.checkpoints[i].waited_seconds, log.checkpoints[i].seconds);
    }
    std::vector<double> found;
    for (const StepMetrics& step : log.steps) found.push_back(step.loss);
    // The plan counts the copies, so both are equal to the byte.
    EXPECT_EQ(log.ends.at(0).planned.memory, log.ends.at(0).measured.memory);
    EXPECT_EQ(log.ends.at(0).planned.memory[MemoryCategory::kSnapshot] > 0, mode == kCopies);
    if (expected.empty()) expected = files(), losses = found;
    EXPECT_TRUE(files() == expected);  // not EXPECT_EQ, which would print them
    EXPECT_EQ(found, losses);
    forget_run();
  }
  EXPECT_EQ(expected.size(), 30U);
}

TEST_F(SavingRuns, AStopWaitsForTheSaveUnderWay) {
  for (const std::string& mode : {kCopies, kPieces}) {
    SCOPED_TRACE(mode);
    int64_t step = 0;
    on_line_ = [&](const std::string& line) { step += line.starts_with("step ") ? 1 : 0; };
    EXPECT_EQ(
        train(ten_steps({mode, "checkpoint.every_steps=2", "checkpoint.keep=0"}), [&] { return step >= 4; }),
        ExitCode::kRequeue);
    // The save of step 4 began when the step had ended; the stop came in step 5.
    EXPECT_EQ(saved_steps(), (std::vector<int64_t>{2, 4, 5}));
    on_line_ = {};
    EXPECT_EQ(train(ten_steps({mode, "checkpoint.every_steps=2", "checkpoint.keep=0"})), ExitCode::kOk);
    EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    forget_run();
  }
}

TEST_F(SavingRuns, AFailedSaveCostsItselfAlone) {
  for (const std::string& mode : {kWaits, kCopies, kPieces}) {
    SCOPED_TRACE(mode);
    fill_until_not_saved(4);
    EXPECT_EQ(train(ten_steps({mode, "checkpoint.every_steps=4", "checkpoint.keep=0"})), ExitCode::kOk);
    EXPECT_HAS(said(), "warning: step 4 was not saved: ");
    EXPECT_HAS(said(), "; there is no checkpoint yet");
    EXPECT_EQ(saved_steps(), (std::vector<int64_t>{8, 10}));
    EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    std::vector<int64_t> failed;
    for (const SaveEvent& save : metrics("run").saves)
      if (save.state == SaveState::kFailed) failed.push_back(save.step);
    EXPECT_EQ(failed, std::vector<int64_t>{4});
    forget_run();
  }
}

// A file server gives errors for some seconds, in which the owner of the run cannot be read.
TEST_F(SavingRuns, AFolderThatCannotBeReadCostsASaveAlone) {
  const std::filesystem::path file = scratch_ / "run" / "checkpoints" / Takeovers::kFileName;
  const std::filesystem::path aside = scratch_ / "aside";
  for (const std::string& mode : {kWaits, kCopies}) {
    SCOPED_TRACE(mode);
    on_line_ = [&](const std::string& line) {
      if (line.starts_with("step 3/")) {
        std::filesystem::rename(file, aside);
        std::filesystem::create_directory(file);
      } else if (line.starts_with("warning: step 4 was not saved")) {
        std::filesystem::remove(file);
        std::filesystem::rename(aside, file);
      }
    };
    EXPECT_EQ(train(ten_steps({mode, "checkpoint.every_steps=4", "checkpoint.keep=0"})), ExitCode::kOk);
    EXPECT_HAS(said(), "warning: step 4 was not saved: ");
    EXPECT_EQ(saved_steps(), (std::vector<int64_t>{8, 10}));
    forget_run();
  }
}

TEST_F(SavingRuns, ThreeFailuresInARowEndTheRun) {
  for (const std::string& mode : {kWaits, kCopies, kPieces}) {
    SCOPED_TRACE(mode);
    // The saves of steps 3, 6 and 9.
    const RunConfig config = ten_steps({mode, "checkpoint.every_steps=3", "checkpoint.keep=0"});
    fill_until(100);
    const Error error = refusal(config);
    EXPECT_EQ(error.code(), ExitCode::kStorage) << error.what();
    EXPECT_HAS(error.what(), "3 saves in a row failed, the last with: ");
    EXPECT_HAS(error.hint(), "the same command then goes on from the beginning, as nothing was saved yet");
    EXPECT_GE(error.step(), 9);
    EXPECT_TRUE(saved_steps().empty());
    disk_.reset();
    on_line_ = {};
    EXPECT_EQ(train(config), ExitCode::kOk);
    EXPECT_EQ(saved_steps(), (std::vector<int64_t>{3, 6, 9, 10}));
    EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    forget_run();
  }
}

// A validation saves its step, and the same step may be due: a full disk still has the time of three saves.
TEST_F(SavingRuns, AStepThatIsSavedTwiceFailsOnce) {
  const RunConfig config = ten_steps({kWaits, "checkpoint.every_steps=3", "train.validate_every=3"});
  const std::filesystem::path data = config.data.directory;
  std::filesystem::copy(data / "train.h5", data / "validation.h5");
  fill_until(100);
  const Error error = refusal(config);
  EXPECT_EQ(error.code(), ExitCode::kStorage) << error.what();
  EXPECT_HAS(error.what(), "3 saves in a row failed");
  EXPECT_EQ(error.step(), 9);
}

// The last save is tried again, because no later step is left.
TEST_F(SavingRuns, TheLastSaveIsTriedThreeTimes) {
  fill_until(100);
  expect_error(refusal(ten_steps({"checkpoint.every_steps=0"})), ExitCode::kStorage, "",
               "from the beginning, as nothing was saved yet");
  int64_t failed = 0;
  for (const SaveEvent& save : metrics("run").saves) failed += save.state == SaveState::kFailed ? 1 : 0;
  EXPECT_LE(failed, 3) << "lines that wait for room are lost with the run";
}

TEST_F(SavingRuns, TheBestIsACheckpointThatExists) {
  for (const std::string& mode : {kWaits, kCopies}) {
    SCOPED_TRACE(mode);
    const RunConfig config =
        ten_steps({mode, "checkpoint.every_steps=0", "train.validate_every=4", "checkpoint.keep=1"});
    const std::filesystem::path data = config.data.directory;
    std::filesystem::copy(data / "train.h5", data / "validation.h5",
                          std::filesystem::copy_options::overwrite_existing);
    fill_until_not_saved(4);
    EXPECT_EQ(train(config), ExitCode::kOk);
    EXPECT_HAS(said(), "warning: step 4 was not saved: ");
    const std::optional<BestSoFar> best = state("run", 10).best;
    ASSERT_TRUE(best);
    EXPECT_TRUE(std::filesystem::exists(checkpoint("run", best->step))) << best->step;
    Io io;
    EXPECT_EQ(find_checkpoint(io, scratch_ / "run", "best"), checkpoint("run", best->step));
    forget_run();
  }
}

// The time limit learns the time from the start of a save to its commit, which waits for the end of a step.
TEST_F(SavingRuns, TheTimeOfASaveHasNoStepInIt) {
  on_line_ = [](const std::string& line) {
    if (line.starts_with("step 5/")) std::this_thread::sleep_for(std::chrono::seconds(3));
  };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(train(ten_steps({kCopies, "checkpoint.every_steps=4", "checkpoint.keep=0"})), ExitCode::kOk);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  const MetricsLog log = metrics("run");
  ASSERT_EQ(log.checkpoints.size(), 3U);
  EXPECT_EQ(log.checkpoints[0].step, 4);
  EXPECT_LT(log.checkpoints[0].seconds, all.count() - 3);
}

TEST_F(SavingRuns, StatusTellsOfASaveUnderWay) {
  Io io;
  std::vector<std::string> lines;
  on_line_ = [&](const std::string& line) {
    if (!line.starts_with("step ")) return;
    // The log is written by a thread, so the line of the save may come a moment later.
    for (int look = 0; look < 2000; ++look, usleep(10000)) {
      const std::string status = status_line(read_status(io, scratch_ / "run"));
      if (line.starts_with("step 5/") && status.find("saving") == status.npos) continue;
      lines.push_back(status);
      break;
    }
  };
  // A save stays "begun" until its commit, at the end of a later step at the earliest.
  EXPECT_EQ(train(ten_steps({kCopies, "checkpoint.every_steps=4"})), ExitCode::kOk);
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_EQ(lines[3].find("saving"), std::string::npos) << lines[3];
  EXPECT_HAS(lines[4], "checkpoint -, saving 4");
  EXPECT_EQ(status_line(read_status(io, scratch_ / "run")).find("saving"), std::string::npos);
}

}  // namespace
}  // namespace ripstop
