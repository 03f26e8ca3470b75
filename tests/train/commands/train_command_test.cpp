// Refusals of `ripstop train` after it read its config, and the changes that a resumed run may make.
#include <gtest/gtest.h>

#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

// A data set and a run of two steps. Each test works on its own copy of the run.
class TrainCommand : public testing::Test {
 protected:
  void SetUp() override {
    const ProgramRun data = expect_success(
        run_program("prepare --source synthetic --examples 200 --seed 1 --vocab-size 400 --output " +
                    (made_ / "data").string()));
    write_bytes(made_ / "config.toml",
                "[run]\ndirectory = \"" + (made_ / "run").string() +
                    "\"\ndevice = \"cpu\"\n[data]\ndirectory = \"" + (made_ / "data").string() +
                    "\"\nsequence_length = 128\n[model]\npreset = \"debug\"\n[train]\nsteps = 2\n"
                    "global_batch_sequences = 2\n[optimizer]\nlearning_rate = 1e-3\n[precision]\ncompute = "
                    "\"float32\"\n[checkpoint]\nevery_steps = 1\n");
    const ProgramRun run = expect_success(run_program("train " + (made_ / "config.toml").string()));
    std::filesystem::copy(made_ / "run", this->run(), std::filesystem::copy_options::recursive);
  }
  std::filesystem::path run() const { return scratch_ / "run"; }

  ProgramRun train(const std::string& overrides) const {
    return run_program("train " + (made_ / "config.toml").string() + " run.directory=" + run().string() +
                       " " + overrides);
  }
  // A refused start leaves metrics.jsonl as it was, to the byte.
  void expect_refused(const std::string& overrides, int code, const std::string& what) const {
    const std::string before = read_bytes(run() / "metrics.jsonl");
    const ProgramRun result = train(overrides);
    EXPECT_EQ(result.exit_code, code) << overrides << "\n" << result.err;
    EXPECT_EQ(result.err.rfind("FATAL code=", 0), 0u) << result.err;
    EXPECT_HAS(result.err, what) << overrides;
    EXPECT_EQ(read_bytes(run() / "metrics.jsonl"), before) << overrides;
  }
  // The steps in metrics.jsonl, in order: a repeated or missing step shows.
  std::vector<int64_t> steps() const {
    std::vector<int64_t> result;
    for (const StepMetrics& step : read_metrics(run() / "metrics.jsonl").steps) result.push_back(step.step);
    return result;
  }

  ScratchDirectory made_, scratch_;
};

TEST_F(TrainCommand, MoreStepsGoOnWhereTheRunEnded) {
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
  const ProgramRun more = expect_success(
      train("train.steps=4 log.every_steps=1 checkpoint.keep=1 train.micro_batch_sequences=1"));
  EXPECT_HAS(more.out + more.err, "train.steps: 2 -> 4");
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_HAS(read_bytes(run() / "config.toml"), "steps = 4");
}

TEST_F(TrainCommand, AllowedChangesNeedTheOptionOnce) {
  const std::string changed = "optimizer.learning_rate=5e-4";
  expect_refused(changed, 64, "optimizer.learning_rate: 0.001 -> 0.0005");
  EXPECT_EQ(train("--allow-changes " + changed).exit_code, 0);
  EXPECT_EQ(read_metrics(run() / "metrics.jsonl").starts.back().argv.back(), "--allow-changes");
  EXPECT_EQ(train(changed).exit_code, 0);
}

TEST_F(TrainCommand, PlanAndTrainContinueAnotherRun) {
  const std::string config = (made_ / "config.toml").string(), fresh = (scratch_ / "new").string(),
                    words =
                        " run.continue_from=" + run().string() + " run.directory=" + fresh + " train.steps=3";
  const std::string source = (run() / "checkpoints/step_00000002").string();
  const ProgramRun plan = expect_success(run_program("plan " + config + words)),
                   json = run_program("plan --json " + config + words);
  EXPECT_HAS(plan.out, "continues       " + source + ", step 2\n");
  EXPECT_HAS(json.out, "\"continues\": \"" + source + "\"");
  EXPECT_HAS(plan.out, "schedule ");
  const ProgramRun none = run_program("plan " + config + words + " train.steps=2"),
                   fewer = run_program("plan " + config + " train.steps=1 --rank-flops 1G"),
                   more = run_program("plan " + config + " train.steps=4 --rank-flops 1G");
  EXPECT_HAS(none.out, "has done 2 steps, and the new run has 2 in all: give more");
  EXPECT_HAS(fewer.out, "train will refuse to go on with");
  EXPECT_HAS(fewer.out, " a step, ");
  EXPECT_EQ(fewer.out.find(" node-hours"), std::string::npos) << "a run that cannot go on takes no time";
  EXPECT_HAS(more.out, " node-hours");
  const ProgramRun other = run_program("plan " + config + words + " data.pack=false");
  EXPECT_HAS(other.out, "train will refuse to go on with " + source);
  EXPECT_EQ(
      run_program("plan " + config + " run.directory=" + fresh + " run.continue_from=nowhere").exit_code, 64);
  EXPECT_EQ(run_program("train " + config + words).exit_code, 0);
  EXPECT_EQ(read_metrics(scratch_ / "new" / "metrics.jsonl").steps.front().step, 3);
  expect_refused("data.sequence_length=64 run.continue_from=" + fresh, 64, "data.sequence_length: 128 -> 64");
}

TEST_F(TrainCommand, ARunThatIsDoneSaysSo) {
  const ProgramRun again = expect_success(train(""));
  EXPECT_HAS(again.out, "done already: give more train.steps");
  const std::string directory = run().string();
  EXPECT_HAS(again.out, "next:\n  ripstop evaluate " + directory + " ");
  for (const char* of_a_run : {"planned / measured", "plan for", "resumes"})
    EXPECT_EQ(again.out.find(of_a_run), std::string::npos) << again.out;
  // With more steps the run goes on.
  const ProgramRun more = train("train.steps=3 train.validate_every=1");
  EXPECT_EQ(more.out.find("done already"), std::string::npos);
  for (const char* at_the_end :
       {"planned / measured", "best: step 3 with loss ", "\nnext:\n  ripstop evaluate "})
    EXPECT_HAS(more.out, at_the_end);
}

// train waits for a pipe without a writer until a signal stops it.
TEST_F(TrainCommand, AConfigFromAPipeIsReadAndTheWaitForItCanBeStopped) {
  const std::string pipe = (scratch_ / "pipe").string(), config = (made_ / "config.toml").string();
  for (const char* signal : {"TERM", "INT"}) {
    // Sends the signal when SIGXCPU, the last to get a handler, has one. Libraries of MPI may handle others.
    write_bytes(scratch_ / "start.sh", "rm -f " + pipe + " && mkfifo " + pipe + "\n'" + ripstop_program() +
                                           "' train " + pipe + " 2>" + pipe +
                                           ".err &\nuntil ((0x$(sed -n 's/^SigCgt:.//p' /proc/$!/status) & "
                                           "0x800000)); do sleep 0.1; done\n" +
                                           "kill -" + signal + " $!\nwait $!\n");
    const int status = std::system(("bash -c 'set -m; . " + (scratch_ / "start.sh").string() + "'").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 75) << signal << read_bytes(pipe + ".err");
  }
  const ProgramRun read = run_program("train " + pipe + " run.directory=" + run().string(),
                                      "{ cat " + config + " >" + pipe + " & } ; timeout -k 5 600");
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_HAS(read.out, "done already");
}

TEST_F(TrainCommand, ADataDirectoryThatIsNotThereIsNamedWithTheCommandThatMakesIt) {
  expect_refused("data.directory=" + (made_ / "dta").string(), 65,
                 "did you mean data.directory=" + (made_ / "data").string() + "?");
  std::filesystem::create_directory_symlink("gone", made_ / "link");
  expect_refused("data.directory=" + (made_ / "link").string(), 65,
                 "link: there is no such data set\" hint=\"it is a link to gone, which is not there\"");
  expect_refused("data.directory=" + (made_ / "data/train.h5").string(), 65,
                 "did you mean data.directory=" + (made_ / "data").string() + "?");
  expect_refused("data.directory=no/such/data", 65, "no/such/data: there is no such directory, looked for /");
  expect_refused("data.directory=no/such/data", 65, "ripstop prepare --output no/such/data makes one");
}

// train refuses another tokenizer than the data set's: the run would store it and write nonsense.
TEST_F(TrainCommand, AnotherTokenizerBesideTheTrainingSetIsRefusedWithoutValidation) {
  const ProgramRun other = expect_success(
      run_program("prepare --source synthetic --examples 200 --seed 9 --vocab-size 400 --output " +
                  (scratch_ / "other").string()));
  std::filesystem::copy(made_ / "data", scratch_ / "data");
  std::filesystem::copy_file(scratch_ / "other/tokenizer.model", scratch_ / "data/tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string set = " train.validate_every=0 data.directory=" + (scratch_ / "data").string();
  expect_refused(set, 65, "train.h5 was made with another tokenizer");
  const ProgramRun fresh = run_program("train " + (made_ / "config.toml").string() + set +
                                       " run.directory=" + (scratch_ / "fresh").string());
  expect_exit(fresh, 65, "prepare the data set again with --tokenizer");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "fresh"));
}

TEST_F(TrainCommand, WhatShapesTheRunMayNotChange) {
  expect_refused("train.steps=1", 64, "train.steps: 2 -> 1");
  expect_refused("optimizer.learning_rate=2e-3", 64, "optimizer.learning_rate: 0.001 -> 0.002");
  expect_refused("model.num_hidden_layers=3", 64, "model.num_hidden_layers: 2 -> 3");
  expect_refused("train.global_batch_sequences=4", 64, "train.global_batch_sequences: 2 -> 4");
  expect_refused("run.seed=2", 64, "run.seed: 1 -> 2");
  expect_refused("data.sequence_length=64", 64, "data.sequence_length: 128 -> 64");
  expect_refused("precision.compute=bfloat16", 64, "precision.compute: \\\"float32\\\" -> \\\"bfloat16\\\"");
}

// The config.toml of a copied run names the original run.
TEST_F(TrainCommand, ACopiedRunDoesNotGoOnInTheOldOne) {
  const std::string copied = "train " + (run() / "config.toml").string();
  expect_exit(run_program(copied + " train.steps=3"), 64, "add run.directory=" + run().string());
  EXPECT_EQ(read_metrics(made_ / "run" / "metrics.jsonl").steps.size(), 2U);
  // Messages use the name of the copy, although its config has the old one.
  expect_exit(run_program("train " + (made_ / "config.toml").string() +
                          " run.seed=2 run.directory=" + run().string()),
              64, run().string() + " was begun with another config: run.seed: 1 -> 2");
  for (const std::filesystem::path& directory : {run(), made_ / "run"}) {
    expect_success(run_program(copied + " train.steps=3 run.directory=" + directory.string()));
    EXPECT_EQ(read_metrics(directory / "metrics.jsonl").steps.size(), 3U);
  }
}

TEST_F(TrainCommand, ANewRunByTheConfigOfAnotherIsNoted) {
  const std::string config = (run() / "config.toml").string(), fresh = (scratch_ / "rnu").string();
  const ProgramRun begun = expect_success(run_program("train " + config + " run.directory=" + fresh));
  EXPECT_HAS(begun.out, "note: " + config + " is the config of the run in " + run().string() +
                            ", which stays as it is: a new run begins in " + fresh);
  // No note if no run begins.
  const std::string taken = (scratch_ / "taken").string();
  write_bytes(scratch_ / "taken/src/a.py", "");
  const ProgramRun refused = run_program("train " + config + " run.directory=" + taken + "/src/a.py/run");
  EXPECT_EQ(refused.exit_code, 64) << refused.err;
  EXPECT_EQ(refused.out.find("a new run begins"), std::string::npos) << refused.out;
  const ProgramRun again = run_program("train " + config + " run.directory=" + fresh);
  EXPECT_EQ(again.out.find("a new run begins"), std::string::npos) << again.out;
}

TEST_F(TrainCommand, ALostLogIsSaidOnce) {
  for (const bool is_there : {false, true}) {
    std::filesystem::remove(run() / "metrics.jsonl");
    if (is_there) write_bytes(run() / "metrics.jsonl", "");
    const ProgramRun more = expect_success(train(is_there ? "train.steps=4" : "train.steps=3"));
    EXPECT_HAS(more.out, "warning: " + (run() / "metrics.jsonl").string() +
                             (is_there ? " is empty" : " is missing") + ": the log begins again here");
    EXPECT_EQ(steps(), (std::vector<int64_t>{is_there ? 4 : 3}));
  }
  EXPECT_EQ(train("train.steps=5").out.find("the log begins again"), std::string::npos);
}

TEST_F(TrainCommand, ADirectoryOfOtherThingsIsRefused) {
  const std::string data = (made_ / "data").string();
  expect_exit(run_program("train " + (made_ / "config.toml").string() + " run.directory=" + data), 64,
              "run.directory " + data + " is not a run directory, and has prepare.json");
  EXPECT_FALSE(std::filesystem::exists(made_ / "data/checkpoints"));
}

TEST_F(TrainCommand, OtherDataIsRefusedByContent) {
  const auto prepare = [&](const std::string& name, const std::string& tokenizer) {
    const std::string directory = (scratch_ / name).string();
    expect_success(run_program("prepare --source synthetic --examples 200 --seed 2 " + tokenizer +
                               " --output " + directory));
    return directory;
  };
  const std::string tokenizer = (made_ / "data/tokenizer.model").string();
  expect_refused("train.steps=4 data.directory=" + prepare("texts", "--tokenizer " + tokenizer), 64,
                 "data set");
  expect_refused("train.steps=4 data.directory=" + prepare("tokens", "--vocab-size 400"), 64, "tokenizer");
  // data.directory may change if the content is the same.
  std::filesystem::copy(made_ / "data", scratch_ / "moved", std::filesystem::copy_options::recursive);
  expect_success(train("train.steps=3 data.directory=" + (scratch_ / "moved").string()));
}

TEST_F(TrainCommand, DirectoriesThatCannotBeWrittenAreStorageErrors) {
  expect_refused("run.directory=/proc/no-such-run", 74, "/proc/no-such-run");
}

// A wrong directory on the command line: the message does not blame the file.
TEST_F(TrainCommand, AFileIsNoRunDirectory) {
  write_bytes(scratch_ / "file", "x");
  const std::string file = (scratch_ / "file").string();
  expect_refused("run.directory=" + file, 64,
                 "run.directory " + file + " is a file, expected a directory or a new name");
  expect_refused("run.directory=" + file, 64, "such as run.directory=" + run().string());
  expect_refused("run.directory=" + file + "/run", 64,
                 "run.directory " + file + "/run cannot be made: " + file + " is a file");
  EXPECT_EQ(read_bytes(scratch_ / "file"), "x");
}

TEST_F(TrainCommand, DataThatIsNotThereLeavesNoRunDirectory) {
  const std::filesystem::path fresh = scratch_ / "fresh";
  expect_refused("data.directory=/no/such/data run.directory=" + fresh.string(), 65, "/no/such/data");
  expect_refused("model.vocab_size=300 run.directory=" + fresh.string(), 65, "300");
  expect_refused("mesh.tensor=2 run.directory=" + fresh.string(), 78, "tensor");
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST_F(TrainCommand, AWarmUpLongerThanTheEpochsIsRefused) {
  expect_refused("run.directory=" + (scratch_ / "epochs").string() + " train.steps=1 schedule.warmup_steps=2",
                 64, "exceeds train.steps 1");
  std::string config = read_bytes(made_ / "config.toml");
  config.replace(config.find("steps = 2"), 9, "epochs = 1");
  write_bytes(made_ / "config.toml", config);
  expect_refused("run.directory=" + (scratch_ / "epochs").string() + " schedule.warmup_steps=100000", 64,
                 "steps that train.epochs come to");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "epochs"));
}

TEST_F(TrainCommand, ProfiledStepsBeyondTheEpochsAreANote) {
  std::string config = read_bytes(made_ / "config.toml");
  config.replace(config.find("steps = 2"), 9, "epochs = 1");
  write_bytes(made_ / "config.toml", config);
  const ProgramRun result =
      expect_success(train("run.directory=" + (scratch_ / "epochs").string() +
                           " train.global_batch_sequences=64 run.profile_steps=1-100000"));
  EXPECT_HAS(result.out, "note: run.profile_steps ends at step 100000, train.epochs come to ");
}

}  // namespace
}  // namespace ripstop
