#include <nlohmann/json.hpp>

#include "tests/expect_has.h"
#include "tests/train/commands/random_run.h"

namespace ripstop {
namespace {

class CheckpointExportCommand : public RandomRun {};

TEST_F(CheckpointExportCommand, WritesADirectoryThatInspectReads) {
  const ProgramRun done = run_program("checkpoint export --format huggingface " + run() + " " + file("out"));
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_HAS(done.out, file("out") + " holds " + run() + "/checkpoints/step_00000007 as float32: 21 tensors");
  EXPECT_HAS(done.out, "next: python -c 'from transformers import pipeline; ");
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.model",
                           "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "README.md"})
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "out" / name)) << name;
  EXPECT_EQ(read_bytes(scratch_ / "out" / "tokenizer.model"),
            read_bytes(scratch_ / "run" / "tokenizer.model"));
  const ProgramRun seen = run_program("checkpoint inspect --json " + file("out"));
  ASSERT_EQ(seen.exit_code, 0) << seen.err;
  const auto json = nlohmann::json::parse(seen.out);
  EXPECT_EQ(json["format"], "huggingface");
  EXPECT_EQ(json["parameters"][0]["dtype"], "F32");
  EXPECT_EQ(json["model"]["hidden_size"], 32);
  // The run's own config says how to generate.
  EXPECT_EQ(nlohmann::json::parse(read_bytes(scratch_ / "out" / "generation_config.json"))["max_new_tokens"],
            12);
}

TEST_F(CheckpointExportCommand, JsonIsOneDocument) {
  const ProgramRun done =
      run_program("checkpoint export --json --dtype bfloat16 --checkpoint 7 " + run() + " " + file("out"));
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["directory"], file("out"));
  EXPECT_EQ(json["format"], "huggingface");
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["dtype"], "bfloat16");
  EXPECT_EQ(json["tensors"], 21);
  int64_t bytes = 0;
  for (const auto& one : json["files"]) {
    const std::string name = one["name"];
    EXPECT_EQ(std::filesystem::file_size(scratch_ / "out" / name), one["bytes"].get<uintmax_t>()) << name;
    bytes += one["bytes"].get<int64_t>();
  }
  EXPECT_EQ(json["bytes"], bytes);
}

TEST_F(CheckpointExportCommand, RefusesWithTheNextThingToDo) {
  const auto refused = [&](const std::string& words, int code, const std::string& says) {
    const ProgramRun run = run_program("checkpoint export " + words);
    EXPECT_EQ(run.exit_code, code) << run.err;
    EXPECT_HAS(run.err, says);
    EXPECT_EQ(run.out, "");
  };
  refused(run() + " " + run(), 64, "exists already");
  refused(run() + " " + file("out") + " --dtype int8", 64, "int8 not in {float32,bfloat16,float16}");
  refused(run() + " " + file("out") + " --format onnx", 64, "onnx not in {huggingface}");
  refused(run() + " " + file("out") + " --checkpoint 8", 64, "8");
  refused(file("absent") + " " + file("out"), 64, "absent");
  refused(run(), 64, "OUT is required");
  write("file", "x");
  refused(run() + " " + file("file/out"), 74, "file");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
  // Weights need no tokenizer.
  std::filesystem::remove(scratch_ / "run" / "tokenizer.model");
  const ProgramRun without = run_program("checkpoint export " + run() + " " + file("without"));
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_HAS(without.err, "has no tokenizer.model: the export has the weights alone");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "without" / "tokenizer_config.json"));
}

TEST_F(CheckpointExportCommand, RefusesAnotherTokenizer) {
  const ProgramRun made = run_program(
      "prepare --source synthetic --examples 500 --seed 9 --vocab-size 380 --output " + file("other"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  std::filesystem::copy_file(scratch_ / "other" / "tokenizer.model", scratch_ / "run" / "tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  const ProgramRun done = run_program("checkpoint export " + run() + " " + file("out"));
  EXPECT_EQ(done.exit_code, 65) << done.err;
  EXPECT_HAS(done.err, "is not the tokenizer that");
}

}  // namespace
}  // namespace ripstop
