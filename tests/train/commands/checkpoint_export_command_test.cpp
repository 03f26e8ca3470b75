#include <nlohmann/json.hpp>

#include "tests/expect_has.h"
#include "tests/train/commands/random_run.h"

namespace ripstop {
namespace {

class CheckpointExportCommand : public RandomRun {};

TEST_F(CheckpointExportCommand, WritesADirectoryThatInspectReads) {
  const ProgramRun done =
      expect_success(run_program("checkpoint export --format huggingface " + run() + " " + file("out")));
  EXPECT_HAS(done.out, file("out") + " holds " + run() + "/checkpoints/step_00000007 as float32: 21 tensors");
  EXPECT_HAS(done.out, "1 file of weights, ");
  EXPECT_HAS(done.out, ": config.json, generation_config.json, README.md, tokenizer.model, ");
  // Without the prompt, ripstop could not summarize with the export.
  EXPECT_HAS(done.out, "next: python -c 'from transformers import AutoModelForCausalLM, AutoTokenizer; m = ");
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.model",
                           "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "README.md"})
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "out" / name)) << name;
  EXPECT_EQ(read_bytes(scratch_ / "out" / "tokenizer.model"),
            read_bytes(scratch_ / "run" / "tokenizer.model"));
  const ProgramRun seen = expect_success(run_program("checkpoint inspect --json " + file("out")));
  const auto json = nlohmann::json::parse(seen.out);
  EXPECT_EQ(json["format"], "huggingface");
  EXPECT_EQ(json["parameters"][0]["dtype"], "F32");
  EXPECT_EQ(json["model"]["hidden_size"], 32);
  // The export has the generation settings of the run's config.
  EXPECT_EQ(nlohmann::json::parse(read_bytes(scratch_ / "out" / "generation_config.json"))["max_new_tokens"],
            12);
}

// An export has all that the run needs to write summaries, so the summaries are the same.
TEST_F(CheckpointExportCommand, SummariesOfAnExportAreThoseOfTheRun) {
  write("run/prompt_template.txt", "Read: {document}\n\nTL;DR:");
  const ProgramRun done = expect_success(run_program("checkpoint export " + run() + " " + file("out")));
  EXPECT_HAS(done.out, "next: ripstop summarize " + file("out") + " --input articles.jsonl");
  EXPECT_EQ(nlohmann::json::parse(read_bytes(scratch_ / "out" / "ripstop_prompt.json")),
            nlohmann::json({{"template", "Read: {document}\n\nTL;DR:"}, {"context", 256}}));
  std::string words;
  for (int i = 0; i < 400; ++i) words += " word" + std::to_string(i);  // longer than the context
  const std::string input =
      write("in.jsonl", "{\"document\": \"the harbour\"}\n{\"document\": \"" + words + "\"}\n");
  const ProgramRun of_run = run_program("summarize " + run() + " --input " + input);
  const ProgramRun of_export = run_program("summarize " + file("out") + " --input " + input);
  ASSERT_EQ(of_run.exit_code, 0) << of_run.err;
  ASSERT_EQ(of_export.exit_code, 0) << of_export.err;
  EXPECT_EQ(of_export.out, of_run.out);
  EXPECT_EQ(lines_of(of_run.out).size(), 2U);
  EXPECT_HAS(of_run.out, "cut_tokens");
  EXPECT_HAS(of_export.err, "note: from " + file("out") + "/generation_config.json: max_new_tokens = 12");
  // The command line wins, and a note names unknown settings.
  const std::string settings =
      write("out/generation_config.json",
            R"({"max_new_tokens": 12, "min_new_tokens": 8, "do_sample": true, "penalty_alpha": 0.6})");
  const ProgramRun won = expect_success(run_program(
      "summarize " + file("out") + " --num-beams 2 generation.max_new_tokens=5 --input " + input));
  EXPECT_HAS(won.err, settings + ": top_k = 50");
  EXPECT_HAS(won.err,
             settings + ": not taken: penalty_alpha, min_new_tokens (it exceeds max_new_tokens = 5)");
  write("out/generation_config.json", "{");
  EXPECT_EQ(run_program("summarize " + file("out") + " --input " + input).exit_code, 65);
}

// With all ids as end tokens, every text is empty, however its tokens are chosen.
TEST_F(CheckpointExportCommand, TextsOfAModelEndAtItsOwnEndTokens) {
  write("run/prompt_template.txt", "{document}\n\nTL;DR:");
  ASSERT_EQ(run_program("checkpoint export " + run() + " " + file("out")).exit_code, 0);
  const std::string input = write("in.jsonl", "{\"document\": \"the harbour\"}\n");
  const std::string summarize = "summarize " + file("out") + " --input " + input;
  const ProgramRun usual = run_program(summarize);
  EXPECT_EQ(usual.err.find("texts end"), std::string::npos) << usual.err;
  EXPECT_EQ(usual.out.find(R"("summary":""})"), std::string::npos) << usual.out;
  nlohmann::json ids;
  for (int id = 0; id < 10'000; ++id) ids.push_back(id);  // the model has fewer
  write("out/generation_config.json", nlohmann::json{{"eos_token_id", ids}}.dump());
  for (const char* way : {"", " --num-beams 3", " --do-sample", " --no-repeat-ngram-size 2"}) {
    const ProgramRun done = expect_success(run_program(summarize + way));
    EXPECT_HAS(done.out, R"("summary":""})");
    EXPECT_HAS(done.err, "generation_config.json: texts end at the tokens 0 <unk>, 1 <s>, 2 </s>, ");
  }
  write("out/generation_config.json", R"({"eos_token_id": 1})");
  EXPECT_HAS(run_program(summarize).err, "texts end at the token 1 <s>, and at the tokenizer's 2 </s>");
}

// generation.eos_token_id replaces the model's ids, and an id that the model does not have is refused.
TEST_F(CheckpointExportCommand, TextsEndAtTheGivenIds) {
  write("run/prompt_template.txt", "{document}\n\nTL;DR:");
  const std::string input = write("in.jsonl", "{\"document\": \"the harbour\"}\n");
  const std::string summarize = "summarize " + run() + " --input " + input;
  ASSERT_EQ(run_program("checkpoint export " + run() + " " + file("out")).exit_code, 0);
  const auto config = nlohmann::json::parse(read_bytes(scratch_ / "out" / "config.json"));
  EXPECT_EQ(config["eos_token_id"], 2);
  std::string all = "0";
  for (int id = 1; id < config["vocab_size"]; ++id) all += "," + std::to_string(id);
  const ProgramRun ended = expect_success(run_program(summarize + " generation.eos_token_id=" + all));
  EXPECT_HAS(ended.out, R"("summary":""})");
  write("out/generation_config.json", R"({"eos_token_id": 1, "max_new_tokens": 12})");
  const ProgramRun replaced =
      run_program("summarize " + file("out") + " generation.eos_token_id=2 --input " + input);
  EXPECT_EQ(replaced.err.find("texts end"), std::string::npos) << replaced.err;
  EXPECT_EQ(replaced.out, run_program(summarize).out);
  expect_exit(run_program(summarize + " generation.eos_token_id=[2,100000]"), 64,
              "generation.eos_token_id has 100000, the model has the ids 0 to ");
}

TEST_F(CheckpointExportCommand, SummarizeTakesATokenizer) {
  write("run/prompt_template.txt", "{document}\n\nTL;DR:");
  const std::string input = write("in.jsonl", "{\"document\": \"the harbour\"}\n");
  const ProgramRun own = run_program("summarize " + run() + " --input " + input);
  std::filesystem::rename(scratch_ / "run" / "tokenizer.model", scratch_ / "away.model");
  const ProgramRun without = run_program("summarize " + run() + " --input " + input);
  expect_exit(without, 65, run() + " has no tokenizer.model");
  EXPECT_HAS(without.err, "--tokenizer FILE, or a directory");
  const ProgramRun given = expect_success(
      run_program("summarize " + run() + " --tokenizer " + file("away.model") + " --input " + input));
  EXPECT_EQ(given.out, own.out);
  ASSERT_EQ(run_program("prepare --source synthetic --examples 500 --seed 9 --vocab-size 380 --output " +
                        file("other"))
                .exit_code,
            0);
  const ProgramRun other =
      run_program("summarize " + run() + " --tokenizer " + file("other") + " --input " + input);
  expect_exit(other, 65, "has another tokenizer (SHA-256 ");
  EXPECT_HAS(other.err, "give the file that the model was trained with");
  std::filesystem::rename(scratch_ / "away.model", scratch_ / "run" / "tokenizer.model");
  EXPECT_HAS(run_program("summarize " + run() + " --tokenizer " + file("other") + " --input " + input).err,
             "leave --tokenizer out: " + run() + " has the model's own");
}

TEST_F(CheckpointExportCommand, JsonIsOneDocument) {
  const ProgramRun done = expect_success(
      run_program("checkpoint export --json --dtype bfloat16 --checkpoint 7 " + run() + " " + file("out")));
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
    expect_exit(run, code, says);
    EXPECT_EQ(run.out, "");
  };
  refused(run() + " " + run(), 64, "exists already");
  refused(run() + " " + file("out") + " --dtype int8", 64,
          "there is no 'int8', it is one of float32, bfloat16, float16");
  refused(run() + " " + file("out") + " --format onnx", 64, "there is no 'onnx', it is one of huggingface");
  refused(run() + " " + file("out") + " --checkpoint 8", 64, "8");
  refused(file("absent") + " " + file("out"), 64, "absent");
  refused(run() + " " + file("out") + " --license 'MIT: all'", 64, "'MIT: all' is not a name of a license");
  refused(run(), 64, "OUT is required");
  write("file", "x");
  refused(run() + " " + file("file/out"), 74, "file");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
  // Weights need no tokenizer.
  std::filesystem::remove(scratch_ / "run" / "tokenizer.model");
  const ProgramRun without = expect_success(
      run_program("checkpoint export --license apache-2.0 --language en " + run() + " " + file("without")));
  EXPECT_HAS(without.err, "has no tokenizer.model and no tokenizer.json: the export has the weights alone");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "without" / "tokenizer_config.json"));
  EXPECT_HAS(read_bytes(scratch_ / "without/README.md"), "\nlicense: apache-2.0\nlanguage:\n- en\n");
}

TEST_F(CheckpointExportCommand, RefusesAnotherTokenizer) {
  expect_success(run_program("prepare --source synthetic --examples 500 --seed 9 --vocab-size 380 --output " +
                             file("other")));
  std::filesystem::copy_file(scratch_ / "other" / "tokenizer.model", scratch_ / "run" / "tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  expect_exit(run_program("checkpoint export " + run() + " " + file("out")), 65, "is not the tokenizer that");
}

}  // namespace
}  // namespace ripstop
