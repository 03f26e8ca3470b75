#include "train/evaluate/evaluation_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"
#include "tests/train/run/full_disk.h"
#include "train/evaluate/predictions.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

const EvaluationSettings kUsual{.step = 1000,
                                .split = "test",
                                .examples = 98,
                                .weights = "0123456789abcdef0123456789abcdef",
                                .data = "fedcba9876543210fedcba9876543210",
                                .compute = "float32",
                                .context = 256,
                                .generation = {.max_new_tokens = 64}};

EvaluationSettings limited(int64_t examples) {
  EvaluationSettings settings = kUsual;
  settings.examples = examples;
  return settings;
}

TEST(EvaluationName, SaysWhatIsNotUsual) {
  EXPECT_EQ(evaluation_name(kUsual, kUsual), "step_00001000-test");
  EXPECT_EQ(evaluation_name(limited(5), kUsual), "step_00001000-test-limit5");
  EvaluationSettings other = limited(5);
  other.generation.max_new_tokens = 32;
  other.data = "00112233445566778899aabbccddeeff";
  EXPECT_EQ(evaluation_name(other, kUsual), "step_00001000-test-limit5-max_new_tokens32-data-00112233");
}

TEST(EvaluationName, SaysHowSummariesAreWritten) {
  EvaluationSettings other = kUsual;
  other.generation = {.num_beams = 4,
                      .length_penalty = 0.6,
                      .early_stopping = EarlyStopping::kNever,
                      .no_repeat_ngram_size = 3,
                      .min_new_tokens = 5};
  EXPECT_EQ(evaluation_name(other, kUsual),
            "step_00001000-test-beams4-length_penalty0.6-early_stopping_never-no_repeat_ngram_size3-min_new_"
            "tokens5");
  EXPECT_EQ(evaluation_name(kUsual, other),
            "step_00001000-test-beams1-no_repeat_ngram_size0-min_new_tokens0");
  other = kUsual;
  other.generation = {.do_sample = true, .temperature = 0.7, .top_k = 50, .top_p = 0.9, .seed = 3};
  EXPECT_EQ(evaluation_name(other, kUsual),
            "step_00001000-test-sample-temperature0.7-top_k50-top_p0.9-seed3");
  EvaluationSettings greedy = other;
  greedy.generation.do_sample = false;
  greedy.generation = greedy.generation.that_count();
  EXPECT_EQ(evaluation_name(greedy, other), "step_00001000-test-no_sample");
  EvaluationSettings unused = kUsual, beams = kUsual;
  unused.generation.length_penalty = beams.generation.length_penalty = 0.6;
  beams.generation.num_beams = 4;
  EXPECT_EQ(evaluation_name(beams, unused), "step_00001000-test-beams4") << "the penalty is the run's";
}

class EvaluationDirectory : public testing::Test {
 protected:
  void claim(const EvaluationSettings& settings) { EvaluationClaim(place_, settings); }
  // The error; "" if the directory is accepted.
  std::string refusal(const EvaluationSettings& settings) {
    const std::string before = read_bytes(place_ / "settings.json");
    const Error error = error_of([&] { claim(settings); });
    if (error.code() == ExitCode::kOk) return "";
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_HAS(error.hint(), "--output");
    EXPECT_EQ(read_bytes(place_ / "settings.json"), before);
    return error.what();
  }
  void write_scores() { write_bytes(place_ / "scores.json", "{}\n"); }
  void write_predictions(const fs::path& directory, int64_t count) {
    PredictionFile file(directory);
    while (file.count() < count)
      file.append({std::to_string(file.count()), "summary", "reference", "document"});
  }

  ScratchDirectory scratch_;
  fs::path place_ = scratch_ / "evaluation/here";
};

TEST_F(EvaluationDirectory, IsMadeAndTakenAgain) {
  EXPECT_THROW(const FullDisk full(400); claim(kUsual), Error);
  EXPECT_TRUE(fs::is_empty(place_));
  claim(kUsual);
  write_scores();
  write_predictions(place_, 3);
  const std::string settings = read_bytes(place_ / "settings.json");
  EXPECT_HAS(settings, "\"max_new_tokens\": 64");
  EXPECT_EQ(refusal(kUsual), "");
  EXPECT_EQ(PredictionFile(place_).count(), 3);
  EXPECT_EQ(read_bytes(place_ / "settings.json"), settings);
}

TEST_F(EvaluationDirectory, OfOtherSettingsIsRefused) {
  claim(kUsual);
  // Without results the directory is free.
  EXPECT_EQ(refusal(limited(7)), "");
  claim(kUsual);
  write_predictions(place_, 1);
  EXPECT_EQ(refusal(limited(5)),
            place_.string() + " has an evaluation with other settings: examples 98 -> 5");
  fs::remove(place_ / "predictions.jsonl");
  write_scores();
  EvaluationSettings other = limited(5);
  other.split = "validation";
  other.weights = "77777777777777777777777777777777";
  other.generation.max_new_tokens = 32;
  EXPECT_EQ(refusal(other),
            place_.string() +
                " has an evaluation with other settings: split test -> validation, examples 98 "
                "-> 5, weights 01234567 -> 77777777, max_new_tokens 64 -> 32");
}

TEST_F(EvaluationDirectory, OfOtherProgramsIsRefused) {
  write_bytes(place_ / "settings.json", "{\"editor.tabSize\": 2}\n");
  EXPECT_HAS(refusal(kUsual), "ripstop evaluate did not write");
  write_bytes(place_ / "settings.json", "no JSON");
  EXPECT_HAS(refusal(kUsual), "ripstop evaluate did not write");
  fs::remove(place_ / "settings.json");
  EXPECT_EQ(refusal(kUsual), "");
  fs::remove(place_ / "settings.json");
  write_scores();
  EXPECT_HAS(refusal(kUsual), "no settings.json");
}

// A user's mistake may name a data set: `--output data/xsum`.
TEST_F(EvaluationDirectory, WithOtherThingsIsRefused) {
  fs::create_directories(place_ / "plots");
  write_bytes(place_ / ".hidden", "");
  for (const char* name : {"tokenizer.model", "prepare.json", "test.h5"}) write_bytes(place_ / name, "");
  EXPECT_EQ(refusal(kUsual),
            place_.string() + " holds no evaluation, and has plots/, prepare.json, test.h5 and 1 more");
  EXPECT_FALSE(fs::exists(place_ / "settings.json"));
  for (const char* name : {"tokenizer.model", "prepare.json", "test.h5"}) fs::remove(place_ / name);
  EXPECT_EQ(refusal(kUsual), place_.string() + " holds no evaluation, and has plots/");
  fs::remove(place_ / "plots");
  EXPECT_EQ(refusal(kUsual), "");
  // People may keep files made from an evaluation in its directory.
  fs::create_directories(place_ / "plots");
  EXPECT_EQ(refusal(kUsual), "");
}

// A run removes old step directories with all files in them.
TEST_F(EvaluationDirectory, AmongTheCheckpointsOfARunIsRefused) {
  write_bytes(scratch_ / "run/metrics.jsonl", "");
  write_bytes(scratch_ / "run/checkpoints/step_00000040/manifest.json", "{}");
  for (const char* name : {"checkpoints/step_00000040/evaluation", "checkpoints/here", "checkpoints"}) {
    place_ = scratch_ / "run" / name;
    EXPECT_HAS(refusal(kUsual), "among the checkpoints of a run") << name;
  }
  place_ = scratch_ / "run/evaluation/here";
  EXPECT_EQ(refusal(kUsual), "");
  // A folder of this name that belongs to no run.
  place_ = scratch_ / "other/checkpoints/here";
  EXPECT_EQ(refusal(kUsual), "");
}

TEST_F(EvaluationDirectory, WithTheLogsOfItsJobIsTaken) {
  for (const char* name : {"slurm-17.out", "logs/17.err", "job.sbatch", "predictions.jsonl.damaged"})
    write_bytes(place_ / name, "");
  EXPECT_EQ(refusal(kUsual), "");
  EXPECT_TRUE(fs::exists(place_ / "settings.json"));
}

// Results must not be mixed with the files of something else.
TEST_F(EvaluationDirectory, ThatIsARunADataSetOrAModelIsRefused) {
  for (const char* name :
       {"config.toml", "metrics.jsonl", "LOCK", "prompt_template.txt", "manifest.json", "train.h5",
        "prepare.json", "tokenizer.model", "model.safetensors", "pytorch_model.bin"}) {
    fs::remove_all(place_);
    write_bytes(place_ / name, "");
    write_bytes(place_ / "notes.md", "");
    EXPECT_EQ(refusal(kUsual), place_.string() + " holds no evaluation, and has " + name);
  }
}

TEST_F(EvaluationDirectory, BelowAFileIsRefused) {
  write_bytes(scratch_ / "file", "");
  place_ = scratch_ / "file";
  EXPECT_HAS(refusal(kUsual), "is not a directory");
  place_ = scratch_ / "file/inside/it";
  EXPECT_EQ(refusal(kUsual),
            place_.string() + " cannot be made: " + (scratch_ / "file").string() + " is not a directory");
}

TEST_F(EvaluationDirectory, ThatCannotBeMadeIsAStorageError) {
  expect_error([&] { EvaluationClaim("/proc/ripstop/evaluation", kUsual); }, ExitCode::kStorage);
}

TEST_F(EvaluationDirectory, LendsItsPredictions) {
  const fs::path all = scratch_ / "evaluation";
  const auto write = [&](const std::string& name, const EvaluationSettings& settings, int64_t count) {
    EvaluationClaim(all / name, settings);
    write_predictions(all / name, count);
  };
  claim(limited(20));
  EXPECT_TRUE(find_predictions(all, place_, limited(20)).predictions.empty());
  write("five", limited(5), 5);
  write("interrupted", kUsual, 9);
  write("here", limited(20), 11);
  EvaluationSettings other = kUsual;
  other.generation.max_new_tokens = 32;
  write("other", other, 30);
  write_bytes(all / "broken/settings.json", "[");
  write_bytes(all / "file", "");
  const FoundPredictions found = find_predictions(all, place_, limited(20));
  EXPECT_EQ(found.directory, all / "interrupted");
  ASSERT_EQ(found.predictions.size(), 9u);
  EXPECT_EQ(found.predictions[8].id, "8");
  EXPECT_TRUE(find_predictions(scratch_ / "absent", place_, kUsual).predictions.empty());
}

TEST_F(EvaluationDirectory, BelongsToOneProcess) {
  std::optional<EvaluationClaim> first(std::in_place, place_, kUsual);
  expect_error([&] { claim(kUsual); }, ExitCode::kUsage, "scores.json: process ");
  first.reset();
  claim(kUsual);
  for (const auto& entry : fs::directory_iterator(place_))
    EXPECT_EQ(entry.path().filename(), "settings.json") << "nothing else stays";
}

// The writer of a pipe may never come, and a device may never end.
TEST_F(EvaluationDirectory, SpecialFilesAreRefused) {
  fs::create_directories(place_);
  for (const char* name : {"settings.json", "predictions.jsonl"}) {
    for (const bool is_device : {false, true}) {
      if (is_device)
        fs::create_symlink("/dev/zero", place_ / name);
      else
        ASSERT_EQ(mkfifo((place_ / name).c_str(), 0600), 0);
      EXPECT_THROW((claim(kUsual), PredictionFile(place_)), Error) << name;
      fs::remove(place_ / name);
    }
    claim(kUsual);
  }
}

TEST_F(EvaluationDirectory, AnEditedLossIsNotBelieved) {
  fs::create_directories(place_);
  write_partial_loss(place_, {.sequences = 4, .complete = true, .sum = {.loss = 2.5, .target_count = 9}});
  EXPECT_EQ(read_partial_loss(place_).sum.target_count, 9);
  std::string edited = read_bytes(place_ / kPartialLossFile);
  edited.replace(edited.find("2.5"), 3, "1.5");
  write_bytes(place_ / kPartialLossFile, edited);
  EXPECT_EQ(read_partial_loss(place_).sequences, 0);
  EXPECT_FALSE(read_partial_loss(place_).complete);
}

}  // namespace
}  // namespace ripstop
