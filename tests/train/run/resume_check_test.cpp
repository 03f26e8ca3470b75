#include "train/run/resume_check.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

Checkpoint saved_with(const std::string& config) {
  Checkpoint checkpoint;
  checkpoint.directory = "runs/a/checkpoints/step_00000007";
  checkpoint.manifest.written_by = "ripstop 0.2.0 (abc)";
  checkpoint.manifest.mesh = {.replicate = 1, .fsdp = 2, .tensor = 2};
  checkpoint.manifest.state.step = 7;
  checkpoint.manifest.state.config = config;
  checkpoint.manifest.state.model = parsed(kSmallest).model;
  checkpoint.manifest.state.model.vocab_size = 400;
  return checkpoint;
}

// Without data sets.
ResumableCheckpoint checked(const Checkpoint& checkpoint, const RunConfig& config, const ModelConfig& model) {
  const std::vector<TokenDataset> none;
  return check_resumable(checkpoint, {.config = config, .model = model, .datasets = none}, nullptr);
}

Error refusal(const Checkpoint& checkpoint, const RunConfig& config) {
  ModelConfig model = config.model;
  model.vocab_size = 400;
  return error_of([&] { checked(checkpoint, config, model); });
}

TEST(ResumeCheck, ListsAllDifferencesAtOnce) {
  const RunConfig before = parsed(kSmallest);
  const Checkpoint checkpoint = saved_with(to_toml(before));
  EXPECT_EQ(refusal(checkpoint, before).code(), ExitCode::kOk);
  expect_error(refusal(checkpoint, parsed(kSmallest, {"run.seed=2", "schedule.kind=linear"})),
               ExitCode::kUsage,
               "runs/a/checkpoints/step_00000007 was begun with another config: run.seed: 1 -> 2, "
               "data.shuffle_seed: 1 -> 2, schedule.kind: \"cosine\" -> \"linear\"");
}

// The model is compared, too: a config may leave the vocabulary to the data set.
TEST(ResumeCheck, TheModelsAreComparedToo) {
  Checkpoint checkpoint = saved_with(to_toml(parsed(kSmallest)));
  checkpoint.manifest.state.model.vocab_size = 500;
  checkpoint.manifest.state.model.rope_theta = 5e5;
  expect_error(refusal(checkpoint, parsed(kSmallest, {"model.rms_norm_eps=0.5"})), ExitCode::kUsage,
               "model.rms_norm_eps: 1e-05 -> 0.5, model.vocab_size: 500 -> 400, "
               "model.rope_theta: 500000.0 -> 10000.0");
}

TEST(ResumeCheck, AConfigThatCannotBeReadIsNoDamage) {
  for (const char* config : {"", "[train\n", "[run]\nkey_of_the_future = 1\n"}) {
    const Error error = refusal(saved_with(config), parsed(kSmallest));
    EXPECT_EQ(error.code(), ExitCode::kStorage) << config;
    EXPECT_HAS(std::string(error.what()), "step_00000007/manifest.json: config");
    EXPECT_HAS(error.hint(), "ripstop 0.2.0 (abc)");
  }
}

TEST(ResumeCheck, NotesSayWhatChanges) {
  const MeshSizes same{.replicate = 1, .fsdp = 2, .tensor = 2}, other{.replicate = 1, .fsdp = 4, .tensor = 1};
  const auto notes = [&](const std::vector<std::string>& overrides, const MeshSizes& mesh) {
    std::string text;
    const RunConfig config = parsed(kSmallest, overrides);
    ModelConfig model = config.model;
    model.vocab_size = 400;
    const Checkpoint checkpoint = saved_with(to_toml(parsed(kSmallest)));
    const ResumableCheckpoint saved = checked(checkpoint, config, model);
    for (const std::string& note : resume_notes(saved, mesh, 7)) text += note + "\n";
    return text;
  };
  EXPECT_EQ(notes({}, same), "");
  EXPECT_HAS(notes({}, other),
             "the mesh was replicate 1 x fsdp 2 x tensor 2 and is replicate 1 x fsdp 4 x tensor 1");
  EXPECT_HAS(notes({"train.micro_batch_sequences=2"}, same), "train.micro_batch_sequences: \"auto\" -> 2\n");
  // kSmallest computes in bfloat16.
  EXPECT_HAS(notes({"train.micro_batch_sequences=2"}, same), "to the digits of bfloat16, not bit for bit");
  EXPECT_HAS(notes({"generation.max_new_tokens=9"}, same), "ROUGE");
  EXPECT_EQ(notes({"log.every_steps=9"}, same), "log.every_steps: 10 -> 9\n");
  EXPECT_EQ(notes({"run.profile_steps=6-7"}, same),
            "run.profile_steps: \"\" -> \"6-7\", of which nothing is traced: the run is at step 7\n");
  EXPECT_EQ(notes({"run.profile_steps=6-8"}, same), "run.profile_steps: \"\" -> \"6-8\"\n");
}

// Every start reads the base, but only the first start reads lora.adapter.
TEST(ResumeCheck, AnAdapterToBeginWithIsNotReadAgain) {
  std::string toml = kSmallest;
  const std::string preset = "preset = \"15m\"";
  toml.replace(toml.find(preset), preset.size(), "pretrained = \"models/a\"");
  toml += "[lora]\nrank = 8\nalpha = 16\n";
  const Checkpoint checkpoint = saved_with(to_toml(parsed(toml)));
  const RunConfig config = parsed(toml, {"model.pretrained=elsewhere", "lora.adapter=adapters/a"});
  const ModelConfig& model = checkpoint.manifest.state.model;
  EXPECT_EQ(resume_notes(checked(checkpoint, config, model), checkpoint.manifest.mesh, 7),
            (std::vector<std::string>{
                "model.pretrained: \"models/a\" -> \"elsewhere\"",
                "lora.adapter: (none) -> \"adapters/a\", of which nothing is read: the adapters are those of "
                "the checkpoint"}));
}

TEST(ResumeCheck, TheRateJumpsIfTheScheduleIsStretched) {
  const RunConfig config = parsed(kSmallest, {"schedule.kind=linear", "schedule.warmup_steps=20"});
  EXPECT_EQ(rate_jump(config, config, 40, 40, 80),
            "more steps stretch the schedule: the learning rate was 5.00e-05 in step 40 and is 6.67e-04 in "
            "step 41");
  EXPECT_EQ(rate_jump(config, config, 40, 80, 80), "");
  EXPECT_EQ(rate_jump(config, config, 0, 40, 80), "") << "nothing was trained with the old rate";
  EXPECT_EQ(rate_jump(config, config, 10, 40, 80), "") << "the warm-up does not stretch";
  EXPECT_EQ(rate_jump(config, config, 40, 40, 40), "") << "there is no next step";
  const RunConfig wsd = parsed(kSmallest, {"schedule.kind=wsd"});
  EXPECT_EQ(rate_jump(wsd, wsd, 91, 100, 200), "") << "its stable part becomes longer";
  const RunConfig constant = parsed(kSmallest, {"schedule.kind=constant"});
  EXPECT_EQ(rate_jump(constant, constant, 40, 40, 80), "");
  EXPECT_EQ(rate_jump(constant, parsed(kSmallest, {"schedule.kind=constant", "optimizer.learning_rate=1e-4"}),
                      40, 80, 80),
            "the learning rate was 1.00e-03 in step 40 and is 1.00e-04 in step 41");
}

TEST(ResumeCheck, WsdBecomesLongerUntilItsRateFalls) {
  const RunConfig config = parsed(kSmallest, {"schedule.kind=wsd", "schedule.warmup_steps=5"});
  Checkpoint checkpoint = saved_with(to_toml(config));
  const auto refused = [&](int64_t step, int64_t old_steps, int64_t steps) {
    checkpoint.manifest.state.step = step;
    const Error error = error_of([&] { check_decay(checkpoint, config, old_steps, steps); });
    if (error.code() == ExitCode::kOk) return std::string();
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_HAS(error.hint(), fmt::format("run.continue_from={} run.directory=NEW", config.run.directory));
    return std::string(error.what());
  };
  EXPECT_EQ(refused(3, 100, 200), "") << "the warm-up does not stretch";
  EXPECT_EQ(refused(91, 100, 200), "") << "step 91 has the whole rate";
  EXPECT_HAS(refused(92, 100, 200), "is at step 92, and its learning rate has begun to fall after step 91");
  EXPECT_HAS(refused(100, 100, 101), "is at step 100");
  EXPECT_EQ(refused(100, 100, 100), "");
  const RunConfig cosine = parsed(kSmallest);
  EXPECT_NO_THROW(check_decay(checkpoint, cosine, 100, 200)) << "its rate is stretched, with a note";
}

// Recomputation changes the memory, which decides an "auto" micro-batch.
TEST(ResumeCheck, OtherRecomputationMayMeanAnotherMicroBatch) {
  const auto notes_of = [](const std::vector<std::string>& before) {
    std::vector<std::string> after = before;
    after.emplace_back("train.recompute=full");
    const RunConfig config = parsed(kSmallest, after);
    ModelConfig model = config.model;
    model.vocab_size = 400;
    const ResumableCheckpoint saved = checked(saved_with(to_toml(parsed(kSmallest, before))), config, model);
    std::string text;
    for (const std::string& note : resume_notes(saved, saved.mesh, 7)) text += note + "\n";
    return text;
  };
  EXPECT_HAS(notes_of({"train.recompute=none"}), "the micro-batch may be another one");
  EXPECT_EQ(notes_of({"train.recompute=none", "train.micro_batch_sequences=1"}).find("may be another one"),
            std::string::npos);
}

// An older run has stored true, for which "auto" is another word without a pipeline.
TEST(ResumeCheck, KeptUnitsMayMeanAnotherMicroBatch) {
  const auto notes_of = [](const std::string& before, const std::string& after, int64_t stages) {
    const auto with = [](const std::string& value) {
      return parsed(kSmallest, {"train.reshard_after_forward=" + value});
    };
    const RunConfig config = with(after);
    ModelConfig model = config.model;
    model.vocab_size = 400;
    ResumableCheckpoint saved = checked(saved_with(to_toml(with(before))), config, model);
    saved.mesh.pipeline = stages;
    std::string text;
    for (const std::string& note : resume_notes(saved, saved.mesh, 7)) text += note + "\n";
    return text;
  };
  EXPECT_EQ(notes_of("true", "auto", 1), "train.reshard_after_forward: true -> \"auto\"\n");
  for (const std::string& text :
       {notes_of("true", "auto", 2), notes_of("false", "auto", 1), notes_of("auto", "false", 1)})
    EXPECT_HAS(text, "the micro-batch may be another one");
}

}  // namespace
}  // namespace ripstop
