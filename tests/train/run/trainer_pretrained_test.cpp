// Whole runs on one rank that begin with the weights of a pretrained model.
#include "tests/train/exchange/pretrained_directory.h"
#include "tests/train/run/small_runs.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"
#include "train/exchange/write/export_model.h"

namespace ripstop {
namespace {

class PretrainedRuns : public SmallRuns {
 protected:
  void SetUp() override {
    data_ = make_data("data", 4);
    const int64_t pieces = Tokenizer(small_model(), "small").vocabulary_size();
    model_.config["vocab_size"] = pieces + 3;
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
      model_.tensor(name).shape[0] = pieces + 3;
    model_.fill("BF16");
    model_.write();
  }

  RunConfig pretrained(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all = {"model.pretrained=" + model_.path().string(), "train.steps=2"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return config(run, data_, all);
  }

  std::string data_;
  PretrainedDirectory model_;
};

TEST_F(PretrainedRuns, ARunBeginsWithItsWeights) {
  ASSERT_EQ(train(pretrained("still",
                             {"train.steps=1", "optimizer.learning_rate=1e-30", "optimizer.weight_decay=0"})),
            ExitCode::kOk);
  EXPECT_HAS(said(), "weights of " + model_.path().string() + " (Hugging Face)");
  EXPECT_HAS(said(),
             "and no tokenizer.json: whether the data set " + data_ + " has its tokenizer was not checked");
  EXPECT_HAS(said(), "the last 3 ids never occur in the data and are never written");
  EXPECT_EQ(state("still", 1).model.vocab_size, model_.config["vocab_size"]);
  Io io;
  const StoredModel saved = open_stored_model(io, checkpoint("still", 1));
  const StoredModel source = open_stored_model(io, model_.path());
  const std::vector<UnitSpec> table = parameter_table(saved.config());
  for (const UnitSpec& unit : table) {
    const UnitLayout layout(unit, 1, 0, 1);
    std::vector<float> before(static_cast<size_t>(layout.elements())), after(before.size());
    WeightsReader(io, source).read(0, {.layout = &layout, .master = before.data()});
    WeightsReader(io, saved).read(0, {.layout = &layout, .master = after.data()});
    // The one step moved weights by less than their last digit, except zeros.
    for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(before[i], after[i], 1e-20) << unit.name;
  }
}

TEST_F(PretrainedRuns, ARunThatHasBegunNeedsTheModelNoMore) {
  ASSERT_EQ(train(pretrained("whole", {"train.steps=4"})), ExitCode::kOk);
  ASSERT_EQ(train(pretrained("broken", {"checkpoint.every_steps=1", "schedule.kind=constant"})),
            ExitCode::kOk);
  const RunConfig goes_on = pretrained("broken", {"train.steps=4", "checkpoint.every_steps=1"});
  std::filesystem::remove_all(model_.path());
  // The state after a killed replacement of the only checkpoint.
  const std::filesystem::path last = checkpoint("broken", 2), folder = last.parent_path();
  std::filesystem::remove_all(checkpoint("broken", 1));
  std::filesystem::rename(last, folder / ".old.step_00000002.1.2");
  EXPECT_EQ(train(goes_on), ExitCode::kOk);
  EXPECT_EQ(steps("broken"), (std::vector<int64_t>{1, 2, 3, 4}));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(metrics("broken").steps[i].loss, metrics("whole").steps[i].loss) << i;
  expect_error(refusal(pretrained("new")), ExitCode::kUsage, "no such directory");
}

// A start that has opened the model finds a checkpoint: the checkpoint's weights count.
TEST_F(PretrainedRuns, AStartThatWasOvertakenGoesOn) {
  std::string lines;
  const auto overtaken = Trainer::make({.config = pretrained("run", {"train.steps=4"}),
                                        .argv = {},
                                        .say = [&](const std::string& line) { lines += line + "\n"; },
                                        .stop_requested = {}},
                                       world_);
  ASSERT_EQ(train(pretrained("run")), ExitCode::kOk);
  EXPECT_EQ(overtaken->run(), ExitCode::kOk);
  EXPECT_HAS(lines, "resumes ");
  EXPECT_EQ(lines.find("weights of "), std::string::npos) << lines;
  EXPECT_EQ(steps("run"), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST_F(PretrainedRuns, ARunMayBeginWithAnotherRunsWeights) {
  ASSERT_EQ(train(pretrained("first")), ExitCode::kOk);
  const RunConfig second = config("second", data_, {"model.pretrained=" + (scratch_ / "first").string()});
  ASSERT_EQ(train(second), ExitCode::kOk);
  EXPECT_HAS(said(), "weights of " + checkpoint("first", 2).string() + " (a checkpoint)");
  EXPECT_EQ(state("second", 1).step, 1) << "its steps begin anew";
}

// A run keeps the ids that end the model's texts: when the model is gone, and in runs that begin with it.
TEST_F(PretrainedRuns, ARunKeepsTheEndTokensOfItsModel) {
  write_bytes(model_.path() / "generation_config.json", R"({"eos_token_id": [9, 7]})");
  const auto ends = [&](const std::string& run, int64_t step) {
    return parse_run_config(state(run, step).config, run).generation.eos_token_id;
  };
  using Ids = std::vector<int32_t>;
  ASSERT_EQ(train(pretrained("run")), ExitCode::kOk);
  EXPECT_EQ(ends("run", 2), (Ids{7, 9}));
  EXPECT_HAS(said(), "summaries of the data set end with the token 2 </s>, texts of ");
  const RunConfig longer = pretrained("run", {"train.steps=3"});
  std::filesystem::remove(model_.path() / "generation_config.json");
  ASSERT_EQ(train(longer), ExitCode::kOk);
  EXPECT_EQ(ends("run", 3), (Ids{7, 9}));
  EXPECT_EQ(said().find("eos_token_id"), std::string::npos) << said();
  ASSERT_EQ(train(config("second", data_, {"model.pretrained=" + (scratch_ / "run").string()})),
            ExitCode::kOk);
  EXPECT_EQ(ends("second", 1), (Ids{7, 9}));
  ASSERT_EQ(train(pretrained("given", {"generation.eos_token_id=8"})), ExitCode::kOk);
  EXPECT_EQ(ends("given", 2), Ids{8});
  ASSERT_EQ(train(pretrained("run", {"train.steps=4", "generation.eos_token_id=8"})), ExitCode::kOk);
  EXPECT_HAS(said(), "generation.eos_token_id: [7, 9] -> [8]");
}

TEST_F(PretrainedRuns, WhatDoesNotFitTheModelIsRefusedBeforeAnythingIsWritten) {
  const auto expect_refused = [&](const std::vector<std::string>& overrides, ExitCode code,
                                  const std::string& what) {
    expect_error(refusal(pretrained("refused", overrides)), code, what);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "refused"));
  };
  expect_refused({"data.sequence_length=64"}, ExitCode::kUsage,
                 "data.sequence_length 64 exceeds the 32 positions");
  write_bytes(model_.path() / "tokenizer.model", small_model() + std::string(1, '\0'));
  expect_refused({}, ExitCode::kInputData, "tokenizer.model");
  std::filesystem::remove(model_.path() / "tokenizer.model");
  model_.erase("model.norm.weight");
  model_.write();
  expect_refused({}, ExitCode::kInputData, "has no model.norm.weight");
  model_.config["vocab_size"] = 3;
  model_.write();
  expect_refused({}, ExitCode::kInputData, "token ids, " + model_.path().string() + " has 3");
}

// The data set's tokenizer has three pieces more than the model's.
TEST_F(PretrainedRuns, NewTokensGetRows) {
  const std::string data = make_data("more", 4, 0, small_model_with({"<a>", "<b>", "<c>"}));
  const std::string has_more = " token ids, " + model_.path().string() + " has ";
  const auto with = [&](const std::string& run, std::vector<std::string> overrides = {}) {
    overrides.insert(overrides.end(), {"data.directory=" + data, "train.steps=2"});
    return pretrained(run, overrides);
  };
  write_bytes(model_.path() / "tokenizer.model", small_model());
  // The model has as many rows that no piece of its own tokenizer uses.
  ASSERT_EQ(train(with("padded")), ExitCode::kOk);
  EXPECT_HAS(said(), "has the tokenizer of " + model_.path().string() + " and 3 more pieces");
  EXPECT_EQ(said().find(has_more), std::string::npos) << said();
  const int64_t pieces = Tokenizer(small_model(), "small").vocabulary_size();
  model_.resize(pieces + 1, 32);
  model_.fill("BF16");
  model_.write();
  expect_error(refusal(with("refused")), ExitCode::kInputData,
               fmt::format("{} token ids, {} has {}: 2 more", pieces + 3, model_.path().string(), pieces + 1),
               "model.resize_vocabulary=mean");
  ASSERT_EQ(train(with("grown", {"model.resize_vocabulary=normal"})), ExitCode::kOk);
  EXPECT_HAS(said(), has_more + fmt::format("{}: 2 more, whose rows begin as the normal", pieces + 1));
  EXPECT_EQ(state("grown", 2).model.vocab_size, pieces + 3);
  // Another tokenizer is refused, though rows could be added.
  std::string other = small_model_with({"<a>", "<b>", "<c>"});
  other.replace(other.find("harbour"), 7, "HARBOUR");
  const std::string foreign = make_data("foreign", 4, 0, other);
  EXPECT_HAS(
      refusal(pretrained("other", {"model.resize_vocabulary=mean", "data.directory=" + foreign})).what(),
      "has another tokenizer (SHA-256 ");
}

TEST_F(PretrainedRuns, AnImportIsNoRunToGoOn) {
  Io io;
  import_model(io, open_stored_model(io, model_.path()), scratch_ / "imported");
  expect_error(refusal(pretrained("imported")), ExitCode::kUsage, "is an imported model, not a run",
               "as model.pretrained");
}

}  // namespace
}  // namespace ripstop
