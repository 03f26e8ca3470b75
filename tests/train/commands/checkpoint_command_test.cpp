#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/small_tokenizer.h"
#include "tests/expect_has.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "tests/train/commands/run_program.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/checkpoint/takeovers.h"

namespace ripstop {
namespace {

class CheckpointCommand : public testing::Test {
 protected:
  void SetUp() override {
    SmallRun run(tiny_model(), {1, 2, 1});
    for (const int64_t step : {1, 2}) run.save_step(io_, scratch_ / "checkpoints", step);
  }
  void damage() {
    const auto file = scratch_ / "checkpoints" / "step_00000002" / "rank_00001.h5";
    std::string bytes = read_bytes(file);
    bytes[bytes.size() / 2] ^= 1;
    write_bytes(file, bytes);
  }
  std::string run_directory() const { return "'" + scratch_.path().string() + "'"; }
  QuickIo io_;
  ScratchDirectory scratch_;
};

TEST_F(CheckpointCommand, Lists) {
  write_bytes(scratch_ / "checkpoints" / "step_00000001" / "manifest.json", "{");
  const ProgramRun text = expect_success(run_program("checkpoint list " + run_directory()));
  EXPECT_HAS(text.out, "step 1          damaged: ");
  EXPECT_HAS(text.out, "replicate 1 x fsdp 2 x tensor 1");
  const auto json = nlohmann::json::parse(run_program("checkpoint list --json " + run_directory()).out);
  ASSERT_EQ(json.at("checkpoints").size(), 2u);
  EXPECT_EQ(json["checkpoints"][0].at("ok"), false);
  EXPECT_EQ(json["checkpoints"][1].at("step"), 2);
  EXPECT_EQ(run_program("checkpoint list /absent").exit_code, 64);
}

TEST_F(CheckpointCommand, ListsWhatAResumeMovedAside) {
  std::filesystem::rename(scratch_ / "checkpoints/step_00000002",
                          scratch_ / "checkpoints/step_00000002.damaged");
  const ProgramRun text = expect_success(run_program("checkpoint list " + run_directory()));
  EXPECT_HAS(text.out, "damaged, moved aside by a resume: step_00000002.damaged");
  const auto json = nlohmann::json::parse(run_program("checkpoint list --json " + run_directory()).out);
  EXPECT_EQ(json.at("checkpoints").size(), 1u);
  ASSERT_EQ(json.at("damaged").size(), 1u);
  EXPECT_GT(json["damaged"][0].at("bytes"), 1000);
  std::filesystem::rename(scratch_ / "checkpoints/step_00000002.damaged",
                          scratch_ / "checkpoints/step_00000002.superseded");
  EXPECT_HAS(run_program("checkpoint list " + run_directory()).out,
             "superseded, moved aside when its step was saved again: step_00000002.superseded");
  const auto superseded = nlohmann::json::parse(run_program("checkpoint list --json " + run_directory()).out);
  EXPECT_EQ(superseded.at("superseded").size(), 1u);
  EXPECT_TRUE(superseded.at("damaged").empty());
}

// A checkpoint that an owner committed after another had taken over is listed, but no verb uses it.
TEST_F(CheckpointCommand, ASupersededCheckpointIsShownAndNotUsed) {
  Takeovers takeovers;
  takeovers.add(0, 0);
  takeovers.add(1, 0);
  takeovers.write(io_, scratch_ / "checkpoints");
  const std::string why = "was committed by takeover 1, but takeover 2 (process ";
  const ProgramRun list = run_program("checkpoint list " + run_directory());
  EXPECT_HAS(list.out, "step 2          superseded: ");
  EXPECT_HAS(list.out, why);
  const auto rows = nlohmann::json::parse(run_program("checkpoint list --json " + run_directory()).out);
  EXPECT_EQ(rows.at("checkpoints")[1].at("ok"), false);
  EXPECT_EQ(rows.at("checkpoints")[1].at("superseded"), true);
  for (const std::string verb : {"inspect", "verify"}) {
    const ProgramRun latest =
        expect_success(run_program("checkpoint " + verb + " --json " + run_directory()));
    EXPECT_HAS(latest.out, "step_00000001");
    EXPECT_HAS(latest.err, "warning: passing over a checkpoint: ");
    EXPECT_HAS(latest.err, why);
    const ProgramRun asked = run_program("checkpoint " + verb + " --checkpoint 2 --json " + run_directory());
    EXPECT_EQ(asked.exit_code, 74);
    EXPECT_HAS(asked.out, why);
  }
  const ProgramRun asked = run_program("checkpoint inspect --checkpoint 2 --json " + run_directory());
  EXPECT_EQ(nlohmann::json::parse(asked.out).at("verdict"), "superseded");
  const auto runs = nlohmann::json::parse(run_program("status --json " + run_directory()).out);
  EXPECT_EQ(runs[0].at("newest_checkpoint"), 1);
}

TEST_F(CheckpointCommand, AnEarlierFormatIsSaidAndIsNoDamage) {
  make_older(scratch_ / "checkpoints/step_00000002");
  const std::string why = "manifest.json: was written by an older ripstop, in format version 5; this one";
  const ProgramRun list = expect_success(run_program("checkpoint list " + run_directory()));
  EXPECT_HAS(list.out, "step 2          unreadable: ");
  EXPECT_HAS(list.out, why);
  for (const std::string verb : {"inspect", "verify"}) {
    const ProgramRun asked = run_program("checkpoint " + verb + " " + run_directory());
    EXPECT_EQ(asked.exit_code, 74);
    EXPECT_HAS(asked.out, why);
  }
  const ProgramRun asked = run_program("checkpoint inspect --json " + run_directory());
  EXPECT_EQ(nlohmann::json::parse(asked.out).at("verdict"), "unreadable");
}

// The messages for a folder that is no run and for a run without checkpoints differ.
TEST_F(CheckpointCommand, AFolderThatIsNoRunIsRefused) {
  std::filesystem::create_directories(scratch_ / "folder");
  const ProgramRun none = run_program("checkpoint list '" + (scratch_ / "folder").string() + "'");
  EXPECT_EQ(none.exit_code, 64);
  EXPECT_HAS(
      none.err,
      "is neither a run nor a model: it has no metrics.jsonl, LOCK, prompt_template.txt or checkpoint");
  write_bytes(scratch_ / "folder/metrics.jsonl", "");
  const ProgramRun empty =
      expect_success(run_program("checkpoint list '" + (scratch_ / "folder").string() + "'"));
  EXPECT_HAS(empty.out, "no checkpoints in");
}

TEST_F(CheckpointCommand, Inspects) {
  const ProgramRun text =
      expect_success(run_program("checkpoint inspect " + run_directory() + " --checkpoint 1"));
  EXPECT_HAS(text.out, "step        1 (1 updates)");
  const auto json = nlohmann::json::parse(run_program("checkpoint inspect --json " + run_directory()).out);
  EXPECT_EQ(json.at("step"), 2);
  EXPECT_EQ(json.at("mesh").at("fsdp"), 2);
  EXPECT_EQ(json.at("parameter_count"), parameter_count(tiny_model()));
}

// The keys are those of the manifest.
TEST_F(CheckpointCommand, InspectsAdapters) {
  const LoraConfig lora{
      .rank = 2, .alpha = 3, .dropout = 0.5, .rslora = true, .targets = {true, false, true}};
  SmallRun run(tiny_model(), {1, 2, 1}, DType::kFloat32, lora);
  CheckpointState state = state_at(3, tiny_model());
  state.adapted = {
      .lora = lora, .directory = "models/base", .hash = "01ab", .samples = "2", .dtype = "float32"};
  for (const auto& error : run.save(io_, scratch_ / "checkpoints", state)) ASSERT_FALSE(error);
  const ProgramRun text = run_program("checkpoint inspect " + run_directory());
  EXPECT_HAS(text.out, "  adapters    alone, rank 2, alpha 3 (rslora), dropout 0.5, of q_proj, v_proj\n");
  EXPECT_HAS(text.out, "  base        models/base\n");
  const auto json = nlohmann::json::parse(run_program("checkpoint inspect --json " + run_directory()).out);
  const auto manifest = nlohmann::json::parse(
      read_bytes(scratch_ / "checkpoints" / step_directory_name(3) / Manifest::kFileName));
  EXPECT_EQ(json.at("adapters"), manifest.at("adapters"));
  EXPECT_EQ(json.at("adapters").at("rank"), 2);
  EXPECT_TRUE(
      nlohmann::json::parse(run_program("checkpoint inspect --checkpoint 2 --json " + run_directory()).out)
          .at("adapters")
          .is_null());
}

TEST_F(CheckpointCommand, InspectGivesAVerdict) {
  const auto inspected = [&](const std::string& words = "") {
    const ProgramRun run =
        expect_success(run_program("checkpoint inspect --json " + run_directory() + words));
    return nlohmann::json::parse(run.out);
  };
  // A checkpoint whose run is gone.
  auto json = inspected();
  EXPECT_EQ(json.at("verdict"), "whole");
  EXPECT_EQ(json.at("problem"), nullptr);
  EXPECT_EQ(json.at("resumable"), false);
  EXPECT_EQ(json.at("tokenizer").at("file"), nullptr);
  EXPECT_EQ(json.at("tokenizer").at("matches"), nullptr);
  write_bytes(scratch_ / "config.toml", "");
  write_bytes(scratch_ / "tokenizer.model", "no tokenizer");
  json = inspected();
  EXPECT_EQ(json.at("resumable"), true);
  EXPECT_HAS(json.at("resume").get<std::string>(), "ripstop train " + (scratch_ / "config.toml").string());
  EXPECT_EQ(json.at("tokenizer").at("file"), (scratch_ / "tokenizer.model").string());
  EXPECT_HAS(json.at("tokenizer").at("problem").get<std::string>(), "not a SentencePiece model");
  json = inspected(" --checkpoint 1");
  EXPECT_EQ(json.at("resumable"), false);
  EXPECT_EQ(json.at("resume"), "the run goes on from step 2, its newest whole checkpoint");
  // By a path without a folder.
  const std::string folder = (scratch_ / "checkpoints").string();
  for (const auto& [place, name] : {std::pair("", "step_00000001"), std::pair("/step_00000001", ".")})
    EXPECT_HAS(run_program(std::string("checkpoint inspect ") + name, "cd " + folder + place + " &&").out,
               "the run goes on from step 2, its newest whole checkpoint");
  const std::string latest = (scratch_ / "checkpoints/step_00000002").string();
  EXPECT_HAS(
      run_program("checkpoint inspect " + latest).out,
      "verdict     whole: the manifest and the sizes of all files are right; ripstop checkpoint verify " +
          latest);
  std::filesystem::resize_file(scratch_ / "checkpoints/step_00000002/rank_00001.h5", 100);
  const ProgramRun text = run_program("checkpoint inspect " + latest);
  EXPECT_EQ(text.exit_code, 74);
  EXPECT_HAS(text.out, "verdict     damaged: ");
  EXPECT_HAS(text.out, "rank_00001.h5");
  EXPECT_HAS(run_program("checkpoint inspect step_00000002", "cd " + folder + " &&").out,
             "ripstop checkpoint list " + folder + " shows them");
  const ProgramRun damaged = run_program("checkpoint inspect --json " + latest);
  EXPECT_EQ(damaged.exit_code, 74);
  json = nlohmann::json::parse(damaged.out);
  EXPECT_EQ(json.at("verdict"), "damaged");
  EXPECT_HAS(json.at("problem").get<std::string>(), "rank_00001.h5");
  EXPECT_EQ(json.at("resumable"), false);
}

TEST_F(CheckpointCommand, Verifies) {
  const ProgramRun whole = expect_success(run_program("checkpoint verify " + run_directory() + " --json"));
  EXPECT_EQ(nlohmann::json::parse(whole.out).at("ok"), true);
  const std::string latest = (scratch_ / "checkpoints/step_00000002").string();
  EXPECT_EQ(
      run_program("checkpoint verify " + run_directory()).out,
      latest + ": whole: every byte is what was written; the latest of 2, --checkpoint takes another\n");
  EXPECT_EQ(run_program("checkpoint verify " + latest).out,
            latest + ": whole: every byte is what was written\n");
  // CLI11 2.1 shows a default as =latest, CLI11 2.4 as [latest].
  const std::string help = run_program("checkpoint verify --help").out;
  EXPECT_TRUE(help.find("=latest") != std::string::npos || help.find("[latest]") != std::string::npos)
      << help;
  damage();
  const ProgramRun damaged = run_program("checkpoint verify " + run_directory() + " --json");
  EXPECT_EQ(damaged.exit_code, 74);
  const auto json = nlohmann::json::parse(damaged.out);
  EXPECT_EQ(json.at("ok"), false);
  ASSERT_EQ(json.at("errors").size(), 1u);
  EXPECT_EQ(json["errors"][0].at("file"), "rank_00001.h5");
  EXPECT_EQ(json["errors"][0].at("offset"), 0);
  EXPECT_TRUE(json["errors"][0].at("what").is_string());
  EXPECT_EQ(run_program("checkpoint verify " + run_directory()).exit_code, 74);
  EXPECT_EQ(run_program("checkpoint verify " + run_directory() + " --checkpoint 1").exit_code, 0);
  EXPECT_EQ(run_program("checkpoint verify " + run_directory() + "/checkpoints/step_00000001").exit_code, 0);
  for (const std::string& which : {std::string("step_00000001"), std::string("step_1"),
                                   (scratch_ / "checkpoints/step_00000001").string()})
    EXPECT_EQ(run_program("checkpoint verify " + run_directory() + " --checkpoint " + which).exit_code, 0)
        << which;
  EXPECT_EQ(run_program("checkpoint verify " + run_directory() + " --checkpoint newest").exit_code, 64);
  EXPECT_EQ(run_program("checkpoint verify /absent").exit_code, 64);
  EXPECT_EQ(run_program("checkpoint verify").exit_code, 64);
  EXPECT_EQ(run_program("checkpoint").exit_code, 64);
  EXPECT_EQ(run_program("checkpoint verify --help").exit_code, 0);
}

// inspect shows a model of Hugging Face, too.
TEST(CheckpointInspect, ShowsAModelOfHuggingFace) {
  PretrainedDirectory directory;
  directory.write();
  const std::string path = "'" + directory.path().string() + "'";
  const ProgramRun text = expect_success(run_program("checkpoint inspect " + path));
  EXPECT_HAS(text.out, "Hugging Face, exported as LlamaForCausalLM");
  EXPECT_HAS(text.out, "2 layers, hidden 8, feed-forward 12, 2 heads (1 key-value), 16 pieces");
  const auto json = nlohmann::json::parse(run_program("checkpoint inspect --json " + path).out);
  EXPECT_EQ(json.at("format"), "huggingface");
  EXPECT_EQ(json.at("parameters").size(), directory.tensors.size());
  EXPECT_EQ(json.at("model").at("num_key_value_heads"), 1);
  EXPECT_EQ(json.at("verdict"), "readable");
  EXPECT_HAS(text.out, "tokenizer   no tokenizer.model");
  write_bytes(directory.path() / "tokenizer.json", "{}");
  EXPECT_HAS(run_program("checkpoint inspect " + path).out, "/tokenizer.json");
  write_bytes(directory.path() / "tokenizer.model", train_small_model());
  const auto with =
      nlohmann::json::parse(run_program("checkpoint inspect --json " + path).out).at("tokenizer");
  EXPECT_EQ(with.at("pieces"), 400);
  EXPECT_EQ(with.at("tokenizer_json"), true);
  EXPECT_EQ(with.at("matches"), nullptr);
  directory.config["model_type"] = "gpt2";
  directory.write();
  expect_exit(run_program("checkpoint inspect " + path), 65, "model_type 'gpt2'");
}

}  // namespace
}  // namespace ripstop
