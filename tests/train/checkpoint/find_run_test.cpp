#include "train/checkpoint/find_run.h"
#include "tests/data/fault_io.h"
#include "tests/expect_error.h"

#include <gtest/gtest.h>

#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class FindRun : public testing::Test {
 protected:
  /// Saves `step` in `run`/checkpoints; `best` is the best step so far.
  void save(const fs::path& run, int64_t step, int64_t best) {
    fs::create_directories(run);
    CheckpointState state = state_at(step, model_.model());
    state.best = BestSoFar{"loss", 3, best};
    for (const auto& error : model_.save(io_, run / "checkpoints", state, {.keep = 0}))
      ASSERT_FALSE(error) << error->what();
  }
  void expect_refused(const fs::path& path, const std::string& which, ExitCode code, const std::string& what,
                      const std::string& hint = "") {
    expect_error([&] { find_checkpoint(io_, path, which); }, code, what, hint);
  }

  QuickIo io_;
  ScratchDirectory scratch_;
  SmallRun model_{tiny_model(), {1, 2, 1}};
};

TEST_F(FindRun, CheckpointsByName) {
  const fs::path run = scratch_ / "run", checkpoints = run / "checkpoints";
  save(run, 1, 1);
  save(run, 20, 1);
  for (const fs::path& start : {run, checkpoints, run / ""}) {
    EXPECT_EQ(find_checkpoint(io_, start, "latest"),
              start / (start == checkpoints ? "step_00000020" : "checkpoints/step_00000020"));
    EXPECT_EQ(find_checkpoint(io_, start, "best").filename(), "step_00000001");
    for (const char* which : {"20", "step_00000020", "step_20", "step_00000020/", "020"})
      EXPECT_EQ(find_checkpoint(io_, start, which).filename(), "step_00000020") << which;
  }
  // The path of a step directory, relative to the current directory or to the run.
  for (const std::string& which :
       {(checkpoints / "step_00000020").string(), (checkpoints / "step_00000020/").string(),
        (run / "checkpoints/../checkpoints/step_00000020").string(),
        std::string("checkpoints/step_00000020")})
    EXPECT_EQ(find_checkpoint(io_, run, which).filename(), "step_00000020") << which;
  for (const char* which : {"latest", "best", "1", "step_00000001"}) {
    EXPECT_EQ(find_checkpoint(io_, checkpoints / "step_00000001", which), checkpoints / "step_00000001");
    EXPECT_EQ(find_checkpoint(io_, checkpoints / "step_00000001" / "", which), checkpoints / "step_00000001");
  }
}

// The step directories are found beside a LOCK, which a run puts there if its `checkpoints` is a link.
TEST_F(FindRun, TheLockOfALinkedFolderIsNoRun) {
  const fs::path run = scratch_ / "run", archive = scratch_ / "archive";
  save(run, 1, 1);
  fs::rename(run / "checkpoints", archive);
  write_bytes(archive / "LOCK", "pid 1\n");
  EXPECT_FALSE(is_run(io_, archive));
  EXPECT_EQ(find_checkpoint(io_, archive, "latest"), archive / "step_00000001");
  fs::remove_all(archive / "step_00000001");
  EXPECT_TRUE(is_run(io_, archive)) << "LOCK alone is a run that has not begun to write";
}

// Exit code 64 if the path names nothing, 74 if it names something damaged.
TEST_F(FindRun, WhatIsNotThereIsAnErrorOfTheCommandLine) {
  const fs::path run = scratch_ / "run";
  save(run, 1, 1);
  save(run, 2, 7);
  for (const char* which : {"newest", "-1", "", "/", "1.5", "step_", "step_-1", "best "})
    expect_refused(run, which, ExitCode::kUsage, "no checkpoint is called", " has those of step 1, 2");
  expect_refused(run, "3", ExitCode::kUsage, "no checkpoint of step 3", "1, 2");
  expect_refused(run, "step_00000003", ExitCode::kUsage, "no checkpoint of step 3");
  expect_refused(run, "best", ExitCode::kStorage, "the best checkpoint, of step 7, does not exist");
  expect_refused(run / "checkpoints/step_00000001", "2", ExitCode::kUsage, "is not the checkpoint '2'");
  expect_refused(scratch_ / "rum", "latest", ExitCode::kUsage, "rum: no such directory",
                 "did you mean " + run.string() + "?");
  expect_refused(run / "checkpoints/step_2/", "latest", ExitCode::kUsage, "step_2: no such directory",
                 "did you mean " + (run / "checkpoints/step_00000002").string() + "?");
  expect_error([&] { find_checkpoints(io_, run / "checkpoints/step_00000002"); }, ExitCode::kUsage, "",
               "it lies in one: give " + run.string());
  fs::create_directory_symlink("gone", scratch_ / "link");
  expect_refused(scratch_ / "link", "latest", ExitCode::kUsage, "link: is not a directory",
                 "it is a link to gone, which is not there");
  expect_refused(scratch_ / "no/such", "latest", ExitCode::kUsage, "no such directory", "run.directory");
  expect_refused(run / "checkpoints/step_00000003", "latest", ExitCode::kUsage, "no such directory");
  expect_refused("", "latest", ExitCode::kUsage, "empty");
  write_bytes(run / "config.toml", "");
  expect_refused(run / "config.toml", "latest", ExitCode::kUsage, "is not a run directory: it is a file",
                 "give " + run.string());
  // The step directory of another run is refused.
  save(scratch_ / "other", 1, 1);
  expect_refused(run, (scratch_ / "other/checkpoints/step_00000001").string(), ExitCode::kUsage,
                 "is not a checkpoint of");
  // If all are damaged, the newest is returned: reading it reports the damage.
  for (const char* step : {"step_00000001", "step_00000002"})
    write_bytes(run / "checkpoints" / step / "manifest.json", "{");
  EXPECT_EQ(find_checkpoint(io_, run, "latest").filename(), "step_00000002");
}

// People give model.pretrained a folder of the hub's cache, of the Trainer or of another program.
TEST_F(FindRun, AModelOneStepOffIsFound) {
  const fs::path hub = scratch_ / "hub/models--acme--tiny", hash = hub / "snapshots/0a1b";
  fs::create_directories(hub / "blobs");
  fs::create_directories(hash);
  const auto hint = [&](const fs::path& path, const std::string& way) {
    expect_refused(path, "best", ExitCode::kUsage, "is neither a run nor a model", way);
  };
  hint(hub, "give the directory of a run");
  fs::create_symlink("../../blobs/1", hash / "config.json");
  for (const fs::path& path : {scratch_ / "hub", hub, hub / "snapshots", hub / "blobs"})
    hint(path, "the model is deeper: give " + hash.string());
  hint(hash, "its config.json is no file: it is a link to ../../blobs/1, which is not there");
  write_bytes(hub / "blobs/1", "{}");
  expect_refused(hash, "best", ExitCode::kUsage, "is a model, and a run is needed here");
  write_bytes(scratch_ / "trainer/checkpoint-5/adapter_config.json", "{}");
  hint(scratch_ / "trainer", "give " + (scratch_ / "trainer/checkpoint-5").string());
  write_bytes(scratch_ / "meta/consolidated.00.pth", "");
  hint(scratch_ / "meta", "it has consolidated.00.pth, a pickle that could run any code, as Meta has it: ");
  expect_refused(scratch_ / "meta/consolidated.00.pth", "best", ExitCode::kUsage, "is not a directory",
                 "convert_llama_weights_to_hf.py");
}

TEST_F(FindRun, AFolderThatIsNoRunIsToldFromARunWithoutCheckpoints) {
  fs::create_directories(scratch_ / "runs/data/checkpoints");  // of any other program
  expect_refused(
      scratch_ / "runs", "latest", ExitCode::kUsage,
      "is neither a run nor a model: it has no metrics.jsonl, LOCK, prompt_template.txt or checkpoint");
  EXPECT_THROW(find_checkpoints(io_, scratch_ / "runs"), Error);
  EXPECT_THROW(find_runs(io_, scratch_ / "runs"), Error);

  write_bytes(scratch_ / "runs/b/metrics.jsonl", "");
  fs::create_directories(scratch_ / "runs/a/checkpoints/step_00000001");
  expect_refused(scratch_ / "runs", "latest", ExitCode::kUsage, "is neither a run nor a model",
                 "give one of them, as " + (scratch_ / "runs/a").string());
  expect_refused(scratch_ / "runs/b", "latest", ExitCode::kUsage, "has no checkpoint", "every_steps");
  EXPECT_EQ(find_checkpoints(io_, scratch_ / "runs/b"), scratch_ / "runs/b/checkpoints");
  // A link to a file and a broken link are neither runs nor errors.
  fs::create_symlink(scratch_ / "runs/b/metrics.jsonl", scratch_ / "runs/c");
  fs::create_symlink(scratch_ / "gone", scratch_ / "runs/d");
  fs::create_directory_symlink(scratch_ / "runs/b", scratch_ / "runs/e");
  EXPECT_EQ(find_runs(io_, scratch_ / "runs"),
            (std::vector<fs::path>{scratch_ / "runs/a", scratch_ / "runs/b", scratch_ / "runs/e"}));
  EXPECT_EQ(find_runs(io_, scratch_ / "runs/b"), (std::vector<fs::path>{scratch_ / "runs/b"}));
}

/// Moves the checkpoint `gone` away when its manifest is opened for the `at`th time, as the run does that
/// removes it.
class RemovingIo : public QuickIo {
 public:
  RemovingIo(fs::path gone, int at) : gone_(std::move(gone)), left_(at) {}
  int open(const fs::path& path, int flags) override {
    if (path == gone_ / Manifest::kFileName && --left_ == 0)
      fs::rename(gone_, gone_.parent_path() / (".trash." + gone_.filename().string()));
    return QuickIo::open(path, flags);
  }

 private:
  fs::path gone_;
  int left_;
};

// A run that goes on removes old checkpoints while other programs look at them: that is no damage.
TEST(ReadersOfARun, ACheckpointThatGoesMeanwhileIsNotDamaged) {
  const ScratchDirectory scratch;
  const fs::path& path = scratch.path();
  QuickIo io;
  SmallRun run(tiny_model(), {1, 2, 1});
  for (int64_t step = 1; step <= 3; ++step) {
    run.fill(step);
    CheckpointState state = state_at(step, run.model());
    state.config =
        "[run]\ndirectory='a'\n[data]\ndirectory='b'\nsequence_length=8\n[train]\nsteps=9\n"
        "global_batch_sequences=1\n[optimizer]\nlearning_rate=1e-3\n[model]\npreset='debug'\n";
    run.save(io, path, state, {.keep = 0});
  }
  RemovingIo first(path / step_directory_name(1), 1);
  std::vector<std::string> verdicts;
  for (const ListedCheckpoint& listed : list_checkpoints(first, path))
    verdicts.emplace_back(listed.verdict());
  EXPECT_EQ(verdicts, (std::vector<std::string>{"whole", "whole"}));
  // A checkpoint that goes between the search and the opening is searched for again.
  RemovingIo second(path / step_directory_name(3), 2);
  const auto errors = SimulatedRanks(1).run([&](Communicator& world) {
    EXPECT_EQ(find_trained_model(second, world, path, "latest").state().step, 2);
  });
  EXPECT_FALSE(errors[0]) << errors[0]->what();
  FaultIo denied(FaultIo::Kind::kError, 0, EACCES);
  denied.for_good = true;  // on one rank: the others must not wait for it in a vote
  for (const auto& error : SimulatedRanks(2).run([&](Communicator& world) {
         find_trained_model(world.rank() == 0 ? static_cast<Io&>(io) : denied, world, path, "latest");
       }))
    expect_error(*error, ExitCode::kStorage, "Permission denied");
  const StoredModel model = open_stored_model(io, path / step_directory_name(2));
  fs::remove_all(path / step_directory_name(2));
  const std::vector<UnitSpec> table = parameter_table(model.config());
  const UnitLayout layout(table[0], 1, 0, 1);
  std::vector<float> values(static_cast<size_t>(layout.elements()));
  expect_error([&] { WeightsReader(io, model).read(0, {.layout = &layout, .master = values.data()}); },
               ExitCode::kStorage, "step_00000002: was removed while it was read");
}

}  // namespace
}  // namespace ripstop
