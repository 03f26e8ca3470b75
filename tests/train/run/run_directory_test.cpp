#include "train/run/run_directory.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"
#include "tests/train/config/small_config.h"
#include "train/checkpoint/find_run.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using small_config::kSmallest;
using small_config::parsed;

class RunDirectoryTest : public ::testing::Test {
 protected:
  /// The error for scratch/NAME as the directory of a run; "" if it is accepted.
  std::string refusal(const std::string& name) {
    const Error error = error_of([&] { check_can_hold_run(io_, scratch_ / name); });
    if (error.code() == ExitCode::kOk) return "";
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_HAS(error.hint(), "run.directory=" + (scratch_ / name / "run").string());
    return error.what();
  }
  void touch(const std::string& path) { write_bytes(scratch_ / path, "x"); }
  RunConfig config(const std::string& run) const {
    return parsed(kSmallest, {"run.directory=\"" + (scratch_ / run).string() + "\""});
  }
  std::unique_ptr<RunDirectory> open(const std::string& run) {
    auto directory = std::make_unique<RunDirectory>(io_, config(run), tokenizer_, "{document}");
    directory->prepare_checkpoints();
    return directory;
  }
  std::string refusal_to_open(const std::string& run) {
    return what_of([&] { open(run); }, ExitCode::kStorage);
  }

  Io io_;
  ScratchDirectory scratch_;
  Tokenizer tokenizer_{small_model(), "small"};
};

TEST_F(RunDirectoryTest, ANewRunTakesADirectoryOfItsOwn) {
  EXPECT_EQ(refusal("absent"), "");
  fs::create_directories(scratch_ / "empty");
  EXPECT_EQ(refusal("empty"), "");
  for (const char* name : {"a.toml", "job.sbatch", "ripstop-17.out", "notes.md", ".gitignore", "logs/17.err",
                           ".ipynb_checkpoints/x"})
    touch(std::string("beside/") + name);
  fs::create_directories(scratch_ / "beside/checkpoints");
  EXPECT_EQ(refusal("beside"), "") << "job scripts, logs and notes";

  for (const char* name : {"train.h5", "validation.h5", "prepare.json", "tokenizer.model"})
    touch(std::string("data/") + name);
  EXPECT_HAS(refusal("data"),
             "is not a run directory, and has prepare.json, tokenizer.model, train.h5 and 1 more");
  touch("repository/.git/HEAD");
  EXPECT_HAS(refusal("repository"), "has .git/");
  touch("corpus/train.jsonl");
  EXPECT_HAS(refusal("corpus"), "train.jsonl");
  touch("mine/config.toml");
  EXPECT_HAS(refusal("mine"), "config.toml") << "the run would overwrite it";
  touch("other/checkpoints/epoch_3.pt");
  EXPECT_HAS(refusal("other"), "checkpoints/");
  EXPECT_THROW(open("data"), Error);
  EXPECT_FALSE(fs::exists(scratch_ / "data/LOCK"));
}

TEST_F(RunDirectoryTest, ARunIsKnownByItsFiles) {
  for (const char* sign : {"metrics.jsonl", "LOCK", "prompt_template.txt", "checkpoints/step_00000010/x"}) {
    fs::remove_all(scratch_ / "run");
    touch("run/config.toml");
    touch("run/evaluation/step_00000010-test/scores.json");
    EXPECT_FALSE(is_run(io_, scratch_ / "run"));
    EXPECT_NE(refusal("run"), "");
    touch(std::string("run/") + sign);
    EXPECT_TRUE(is_run(io_, scratch_ / "run")) << sign;
    EXPECT_EQ(refusal("run"), "") << sign;
  }
}

TEST_F(RunDirectoryTest, ACopiedRunDoesNotGoOnInTheOldOne) {
  touch("old/metrics.jsonl");
  touch("copy/metrics.jsonl");
  const auto check = [&](const std::string& file) {
    return what_and_hint_of([&] { check_names_own_directory(io_, scratch_ / file, config("old")); },
                            ExitCode::kUsage);
  };
  EXPECT_EQ(check("old/config.toml"), "");
  EXPECT_EQ(check("mine/config.toml"), "") << "not a run's";
  EXPECT_EQ(check("copy/mine.toml"), "") << "not the run's own";
  EXPECT_HAS(check("copy/config.toml"), "names run.directory " + (scratch_ / "old").string());
  EXPECT_HAS(check("copy/config.toml"),
             "add run.directory=" + (scratch_ / "copy").string() + " to go on there");
  touch("co py/metrics.jsonl");
  EXPECT_HAS(check("co py/config.toml"),
             "add 'run.directory=" + (scratch_ / "co py").string() + "' to go on there");
  fs::remove_all(scratch_ / "old");
  EXPECT_NE(check("copy/config.toml"), "") << "a run that was moved";
  fs::create_directory_symlink(scratch_ / "copy", scratch_ / "old");
  EXPECT_EQ(check("copy/config.toml"), "") << "one directory by two names";
}

TEST_F(RunDirectoryTest, OneRunAtATimeWritesIntoAFolder) {
  fs::create_directories(scratch_ / "shared");
  for (const char* run : {"a", "b"}) {
    fs::create_directories(scratch_ / run);
    fs::create_directory_symlink(scratch_ / "shared", scratch_ / run / "checkpoints");
  }
  {
    const auto a = open("a");
    EXPECT_HAS(refusal_to_open("b"), (scratch_ / "b/checkpoints").string() + " is a link: " +
                                         (scratch_ / "shared").string() + ": this run is owned by process");
    EXPECT_NO_THROW(a->check_still_owned());
    fs::remove(scratch_ / "shared/LOCK");
    EXPECT_THROW(a->check_still_owned(), Error);
  }
  EXPECT_EQ(refusal_to_open("b"), "");
  EXPECT_FALSE(fs::exists(scratch_ / "shared/LOCK"));
}

TEST_F(RunDirectoryTest, ALinkIntoAnotherRunIsCoveredByItsLock) {
  fs::create_directories(scratch_ / "a/checkpoints/step_00000010");
  fs::create_directories(scratch_ / "b");
  fs::create_directory_symlink(scratch_ / "a/checkpoints", scratch_ / "b/checkpoints");
  {
    const auto a = open("a");
    EXPECT_FALSE(fs::exists(scratch_ / "a/checkpoints/LOCK")) << "its own LOCK covers them";
    EXPECT_HAS(refusal_to_open("b"), (scratch_ / "a").string() + ": this run is owned by");
  }
  const auto b = open("b");
  EXPECT_HAS(refusal_to_open("a"), "this run is owned by");
}

}  // namespace
}  // namespace ripstop
