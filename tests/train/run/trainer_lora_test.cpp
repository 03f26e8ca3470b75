// Whole runs on one rank that train adapters beside a frozen model.

#include "tests/train/exchange/pretrained_directory.h"
#include "tests/train/run/small_runs.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {
namespace {

class LoraRuns : public SmallRuns {
 protected:
  void SetUp() override {
    data_ = make_data("data", 4);
    write_model(model_);
  }

  static void write_model(PretrainedDirectory& model) {
    const int64_t pieces = Tokenizer(small_model(), "small").vocabulary_size();
    model.config["vocab_size"] = pieces;
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
      model.tensor(name).shape[0] = pieces;
    model.fill("BF16");
    model.write();
  }

  /// Another model of the same sizes.
  static void write_other_model(PretrainedDirectory& other) {
    write_model(other);
    char& first = other.tensor("lm_head.weight").values.front();
    first = static_cast<char>(first ^ 1);
    other.write();
  }

  RunConfig adapted(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> all = {"model.pretrained=" + model_.path().string(), "train.steps=4"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    RunConfig made = config(run, data_, all);
    static_cast<LoraConfig&>(made.lora) = {.rank = 2, .alpha = 4, .dropout = 0.1, .targets = {}};
    made.lora.targets.fill(true);
    return made;
  }

  /// All weights of a stored model, with its adapters merged.
  static std::vector<float> weights_of(const StoredModel& model) {
    std::vector<float> all;
    const std::vector<UnitSpec> table = parameter_table(model.config());
    Io io;
    for (const UnitSpec& unit : table) {
      const UnitLayout layout(unit, 1, 0, 1);
      std::vector<float> values(static_cast<size_t>(layout.elements()), 7.0F);
      WeightsReader(io, model).read(0, {.layout = &layout, .master = values.data()});
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::string data_;
  PretrainedDirectory model_;
};

TEST_F(LoraRuns, TrainsAdaptersAndSavesThemAlone) {
  ASSERT_EQ(train(adapted("run")), ExitCode::kOk);
  EXPECT_HAS(said(), "weights of " + model_.path().string() + ", frozen");
  EXPECT_HAS(said(), "of adapters (rank 2 on q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj)");
  const CheckpointState saved = state("run", 4);
  ASSERT_TRUE(saved.adapted.has_value());
  EXPECT_EQ(saved.adapted->lora.rank, 2);
  EXPECT_EQ(saved.adapted->directory, std::filesystem::absolute(model_.path()).string());
  Io io;
  const Manifest manifest = read_manifest(io, checkpoint("run", 4));
  for (const UnitSpec& unit : manifest.units) EXPECT_HAS(unit.name, ".lora");
  // Opened as a stored model, the checkpoint is base and adapters together.
  const std::vector<float> base = weights_of(open_stored_model(io, model_.path())),
                           merged = weights_of(open_stored_model(io, checkpoint("run", 4)));
  ASSERT_EQ(base.size(), merged.size());
  size_t changed = 0;
  for (size_t i = 0; i < base.size(); ++i) changed += base[i] != merged[i] ? 1 : 0;
  size_t adapted = 0;
  for (const AdapterSpec& adapter : adapter_specs(saved.model, saved.adapted->lora))
    adapted += static_cast<size_t>(adapter.matrix.count());
  EXPECT_GT(changed, adapted / 2);
  EXPECT_LE(changed, adapted) << "tables and norms stay";
}

TEST_F(LoraRuns, AnInterruptedRunGoesOnToTheBit) {
  ASSERT_EQ(train(adapted("whole")), ExitCode::kOk);
  ASSERT_EQ(train(adapted("broken", {"train.steps=2"})), ExitCode::kOk);
  ASSERT_EQ(train(adapted("broken")), ExitCode::kOk);
  EXPECT_EQ(steps("broken"), (std::vector<int64_t>{1, 2, 3, 4}));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(metrics("broken").steps[i].loss, metrics("whole").steps[i].loss) << i;
}

TEST_F(LoraRuns, ARunNeedsItsBase) {
  ASSERT_EQ(train(adapted("run", {"train.steps=2"})), ExitCode::kOk);
  // The base is found in another place.
  const std::filesystem::path moved = scratch_ / "moved";
  std::filesystem::rename(model_.path(), moved);
  RunConfig goes_on = adapted("run");
  expect_error(refusal(goes_on), ExitCode::kInputData, "no such directory");
  goes_on.model.pretrained = moved.string();
  ASSERT_EQ(train(goes_on), ExitCode::kOk);
  // Another model in its place is refused.
  PretrainedDirectory other;
  write_other_model(other);
  goes_on.train.steps = 6;
  goes_on.model.pretrained = other.path().string();
  std::filesystem::remove_all(moved);
  expect_error(refusal(goes_on), ExitCode::kInputData, "has other weights");
}

// If a config names another place, only that place counts, even while the base is where it was.
TEST_F(LoraRuns, APlaceThatTheConfigNamesAnewIsTheOnlyOne) {
  ASSERT_EQ(train(adapted("run", {"train.steps=2"})), ExitCode::kOk);
  PretrainedDirectory other;
  write_other_model(other);
  RunConfig goes_on = adapted("run");
  goes_on.model.pretrained = other.path().string();
  const Error error = refusal(goes_on);
  EXPECT_EQ(error.code(), ExitCode::kInputData);
  EXPECT_EQ(std::string(error.what()), "the model that the adapters were trained with is not there: " +
                                           other.path().string() + ": has other weights");
  EXPECT_HAS(error.hint(), "it was at " + model_.path().string());
  // Another spelling of the same path is no other place.
  goes_on.model.pretrained = model_.path().string() + "/./";
  ASSERT_EQ(train(goes_on), ExitCode::kOk);
  EXPECT_EQ(state("run", 4).adapted->directory, model_.path().string());
  EXPECT_EQ(state("run", 4).adapted->hash, state("run", 2).adapted->hash);
}

// Two starts read the directory before there is a checkpoint, like two jobs that wait for one lock.
TEST_F(LoraRuns, AStartThatWasOvertakenGoesOnWithTheBaseOfTheOther) {
  PretrainedDirectory other;
  write_other_model(other);
  RunConfig with_other = adapted("run");
  with_other.model.pretrained = other.path().string();
  const auto start_of = [&](const RunConfig& config) {
    return Trainer::make({.config = config, .argv = {}, .say = {}, .stop_requested = {}}, world_);
  };
  auto overtaken = start_of(adapted("run")), on_another_model = start_of(with_other);
  ASSERT_EQ(train(adapted("run", {"train.steps=2"})), ExitCode::kOk);
  expect_error([&] { on_another_model->run(); }, ExitCode::kInputData,
               other.path().string() + ": has other weights");
  on_another_model.reset();  // it has the run's lock
  EXPECT_EQ(overtaken->run(), ExitCode::kOk);
  overtaken.reset();
  ASSERT_EQ(train(adapted("whole")), ExitCode::kOk);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(metrics("run").steps[i].loss, metrics("whole").steps[i].loss) << i;
}

TEST_F(LoraRuns, ARunThatIsDoneNeedsNoBase) {
  ASSERT_EQ(train(adapted("run")), ExitCode::kOk);
  std::filesystem::remove_all(model_.path());
  EXPECT_EQ(train(adapted("run")), ExitCode::kOk);
}

TEST_F(LoraRuns, AResumeTellsOnceThatAnAdapterIsNotRead) {
  ASSERT_EQ(train(adapted("run", {"train.steps=2"})), ExitCode::kOk);
  RunConfig goes_on = adapted("run");
  goes_on.lora.adapter = "elsewhere";
  ASSERT_EQ(train(goes_on), ExitCode::kOk);
  const std::string about = "lora.adapter: ";
  size_t count = 0;
  for (size_t at = said().find(about); at != std::string::npos; at = said().find(about, at + 1)) ++count;
  EXPECT_EQ(count, 1U) << said();
  EXPECT_HAS(said(), "of which nothing is read");
}

// The byte lies between the samples by which a base is found.
TEST_F(LoraRuns, ABaseWithOneOtherByteIsRefused) {
  PretrainedDirectory wide;
  wide.config["intermediate_size"] = 4096;
  for (TensorToWrite& tensor : wide.tensors)
    for (int64_t& size : tensor.shape)
      if (tensor.name.find(".mlp.") != std::string::npos && size == 12) size = 4096;
  write_model(wide);
  RunConfig run = adapted("run", {"train.steps=1"});
  run.model.pretrained = wide.path().string();
  ASSERT_EQ(train(run), ExitCode::kOk);
  std::string& values = wide.tensor("model.layers.0.mlp.up_proj.weight").values;
  ASSERT_GT(values.size(), 3 * 4096U);
  values[values.size() / 2] = static_cast<char>(values[values.size() / 2] ^ 1);
  wide.write();
  run.train.steps = 2;
  expect_error(refusal(run), ExitCode::kInputData, "the same tensors, and other bytes in them");
  // The base is read last, because that takes long: other errors come first.
  RunConfig other_rate = run;
  other_rate.optimizer.learning_rate = 1;
  EXPECT_EQ(refusal(other_rate).code(), ExitCode::kUsage);
  // The merged weights of the run contain the damaged byte, too.
  RunConfig on_it = adapted("second", {"train.steps=1"});
  on_it.model.pretrained = (scratch_ / "run").string();
  EXPECT_HAS(refusal(on_it).what(), "the same tensors, and other bytes in them");
  // The damaged model is still in the place of the base.
  PretrainedDirectory copy;
  copy.config = wide.config;
  copy.tensors = wide.tensors;
  std::string& mended = copy.tensor("model.layers.0.mlp.up_proj.weight").values;
  mended[mended.size() / 2] = static_cast<char>(mended[mended.size() / 2] ^ 1);
  copy.write();
  run.model.pretrained = copy.path().string();
  EXPECT_EQ(train(run), ExitCode::kOk);
}

TEST_F(LoraRuns, ABaseWithAnotherRotaryAngleIsRefused) {
  RunConfig run = adapted("run", {"train.steps=1"});
  ASSERT_EQ(train(run), ExitCode::kOk);
  model_.config["rope_theta"] = 500000.0;
  model_.write();
  run.train.steps = 2;
  expect_error(refusal(run), ExitCode::kInputData, "has another config.json, model.rope_theta");
}

// The checkpoint of the adapters lies in the place of its base.
TEST_F(LoraRuns, ACheckpointThatWouldBeItsOwnBaseIsRefused) {
  ASSERT_EQ(train(config("base", data_, {"model.pretrained=" + model_.path().string()})), ExitCode::kOk);
  RunConfig on_it = adapted("run", {"train.steps=1"});
  on_it.model.pretrained = (scratch_ / "base").string();
  ASSERT_EQ(train(on_it), ExitCode::kOk);
  std::filesystem::remove_all(checkpoint("base", 1));
  std::filesystem::copy(checkpoint("run", 1), checkpoint("base", 1));
  Io io;
  for (const char* run : {"run", "base"}) {
    expect_error([&] { open_stored_model(io, checkpoint(run, 1)); }, ExitCode::kInputData,
                 "has other weights");
  }
}

TEST_F(LoraRuns, ARunBeginsOnTheWeightsOfAnotherRunOfAdapters) {
  ASSERT_EQ(train(adapted("first")), ExitCode::kOk);
  RunConfig second = adapted("second", {"train.steps=1"});
  second.model.pretrained = (scratch_ / "first").string();
  ASSERT_EQ(train(second), ExitCode::kOk);
  RunConfig whole = config("whole", data_, {"model.pretrained=" + (scratch_ / "first").string()});
  ASSERT_EQ(train(whole), ExitCode::kOk);
  EXPECT_FALSE(state("whole", 1).adapted.has_value());
}

// The lowest of three stacked models is gone.
TEST_F(LoraRuns, ABaseUnderABaseIsNamed) {
  ASSERT_EQ(train(adapted("first", {"train.steps=1"})), ExitCode::kOk);
  RunConfig second = adapted("second", {"train.steps=1"});
  second.model.pretrained = (scratch_ / "first").string();
  ASSERT_EQ(train(second), ExitCode::kOk);
  const std::filesystem::path moved = scratch_ / "moved";
  std::filesystem::rename(model_.path(), moved);
  second.train.steps = 2;
  expect_error(refusal(second), ExitCode::kInputData, model_.path().string() + ": no such directory",
               "a symbolic link will do");
  std::filesystem::create_directory_symlink(moved, model_.path());
  EXPECT_EQ(train(second), ExitCode::kOk);
}

TEST_F(LoraRuns, WhatDoesNotFitTheModelIsRefused) {
  RunConfig config = adapted("refused");
  config.lora.rank = 1000;
  expect_error(refusal(config), ExitCode::kUsage, "lora.rank is 1000, q_proj is [8, 8]");
}

TEST_F(LoraRuns, ANewRunContinuesTheAdaptersOfAnother) {
  ASSERT_EQ(train(adapted("unbroken", {"train.steps=6"})), ExitCode::kOk);
  ASSERT_EQ(train(adapted("source")), ExitCode::kOk);
  const std::string from = "run.continue_from=" + (scratch_ / "source").string();
  ASSERT_EQ(train(adapted("new", {"train.steps=6", from})), ExitCode::kOk);
  EXPECT_EQ(steps("new"), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(read_bytes(checkpoint("new", 6) / "rank_00000.h5"),
            read_bytes(checkpoint("unbroken", 6) / "rank_00000.h5"));
  EXPECT_EQ(state("new", 6).adapted, state("unbroken", 6).adapted);
  expect_error(
      refusal(config("whole", data_, {"model.pretrained=" + model_.path().string(), "train.steps=6", from})),
      ExitCode::kUsage, "lora.rank: 2 -> 0");
}

}  // namespace
}  // namespace ripstop
