// evaluate and summarize, as users call them, on a run of random weights: their files, resuming, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer.h"
#include "parallel/sharded_transformer.h"
#include "tests/train/commands/run_program.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/config/run_config.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = R"(
[run]
directory = "RUN"
[model]
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 4
vocab_size = 400
max_position_embeddings = 256
initializer_range = 0.5
[data]
directory = "DATA"
sequence_length = 256
[train]
steps = 7
global_batch_sequences = 4
[optimizer]
learning_rate = 1e-3
[precision]
compute = "float32"
[generation]
max_new_tokens = 12
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

// Writes a run as the trainer leaves it, with random weights.
void write_run(const fs::path& run, const fs::path& data, const std::string& more_generation = "") {
  fs::create_directories(run);
  fs::copy_file(data / "tokenizer.model", run / "tokenizer.model");
  const RunConfig config = parse_run_config(
      replaced(replaced(kConfig, "RUN", run.string()), "DATA", data.string()) + more_generation, "test");
  MpiWorld world;
  DeviceMesh mesh(world, {.replicate = 1, .fsdp = 1, .tensor = 1});
  const Stream stream(Device::cpu());
  MemoryLedger ledger;
  ShardedTransformer model(
      config.model, mesh, stream, ledger,
      {.compute = DType::kFloat32, .sequence_count = 1, .sequence_length = 256, .training = false});
  Arena arena(Device::cpu(), ledger);
  model.initialize(11);
  std::vector<UnitStates> units;
  std::vector<std::vector<float>> moments;
  for (const FsdpUnit& unit : model.units()) moments.emplace_back(static_cast<size_t>(unit.master().count()));
  for (size_t u = 0; u < moments.size(); ++u) {
    const FsdpUnit& unit = model.units()[u];
    units.push_back({&unit.layout(), unit.master().as<float>(), moments[u].data(), moments[u].data()});
  }
  CheckpointState state;
  state.step = 7;
  state.model = config.model;
  state.config = to_toml(config);
  state.tokenizer_sha256 = Tokenizer(data).sha256();
  PosixIo io;
  CheckpointWriter(io, run / "checkpoints", mesh.world(), mesh.sizes(), units).save(state, {});
}

class EvaluateCommand : public testing::Test {
 protected:
  void SetUp() override {
    const ProgramRun made =
        run_program("prepare --source synthetic --examples 1500 --seed 3 --vocab-size 400 --output " +
                    (scratch_ / "data").string());
    ASSERT_EQ(made.exit_code, 0) << made.err;
    write_run(scratch_ / "run", scratch_ / "data");
  }
  std::string run() { return (scratch_ / "run").string(); }
  std::string file(const std::string& name) { return (scratch_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) {
    write_bytes(scratch_ / name, bytes);
    return file(name);
  }

  ScratchDirectory scratch_;
};

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> objects;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) objects.push_back(json::parse(line));
  return objects;
}

TEST_F(EvaluateCommand, ScoresASplit) {
  const std::string output = file("scored");
  const ProgramRun got = run_program("evaluate " + run() + " --limit 9 --json --output " + output);
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const json scores = json::parse(got.out);
  EXPECT_EQ(scores.at("step"), 7);
  EXPECT_EQ(scores.at("split"), "test");
  EXPECT_EQ(scores.at("examples"), 9);
  EXPECT_GT(scores.at("targets"), 9);
  // Random weights know nothing, so the loss is that of guessing or worse.
  EXPECT_GT(scores.at("loss"), 5.0);
  EXPECT_NEAR(scores.at("perplexity").get<double>(), std::exp(scores.at("loss").get<double>()),
              1e-9 * scores.at("perplexity").get<double>());
  EXPECT_EQ(json::parse(read_bytes(fs::path(output) / "scores.json")), scores);
  // The scores are those of the predictions that were written.
  const std::string predictions = read_bytes(fs::path(output) / "predictions.jsonl");
  std::string references;
  for (const json& line : lines_of(predictions))
    references += json{{"summary", line.at("reference")}}.dump() + "\n";
  const ProgramRun again = run_program("rouge --json --reference " + write("references", references) +
                                       " --candidate " + output + "/predictions.jsonl");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  for (const char* name : {"rouge1", "rouge2", "rougeL"})
    EXPECT_EQ(json::parse(again.out).at(name), scores.at(name));
}

TEST_F(EvaluateCommand, GoesOnWhereItStopped) {
  const fs::path whole = file("whole"), parts = file("parts");
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 8 --output " + whole.string()).exit_code, 0);
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 3 --output " + parts.string()).exit_code, 0);
  write_bytes(parts / "predictions.jsonl",
              read_bytes(parts / "predictions.jsonl") + "{\"example\":3,\"id\":\"torn");
  const ProgramRun rest =
      run_program("evaluate " + run() + " --limit 8 --batch-size 2 --output " + parts.string());
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_NE(rest.out.find("3 of 8 summaries are there already"), std::string::npos) << rest.out;
  EXPECT_EQ(read_bytes(parts / "predictions.jsonl"), read_bytes(whole / "predictions.jsonl"));
  EXPECT_EQ(read_bytes(parts / "scores.json"), read_bytes(whole / "scores.json"));
}

TEST_F(EvaluateCommand, WritesBesideTheRun) {
  const ProgramRun got = run_program("evaluate " + run() + " --checkpoint 7 --split validation --limit 2");
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_NE(got.out.find("rougeL"), std::string::npos);
  EXPECT_TRUE(fs::exists(fs::path(run()) / "evaluation/step_00000007-validation/scores.json"));
}

TEST_F(EvaluateCommand, RefusesWhatDoesNotFit) {
  EXPECT_EQ(run_program("evaluate " + file("absent")).exit_code, 74);
  EXPECT_EQ(run_program("evaluate " + run() + " --checkpoint 8").exit_code, 74);
  EXPECT_EQ(run_program("evaluate " + run() + " --checkpoint newest").exit_code, 64);
  EXPECT_EQ(run_program("evaluate " + run() + " --split dev").exit_code, 64);
  const ProgramRun no_data = run_program("evaluate " + run() + " --data " + file("absent"));
  EXPECT_EQ(no_data.exit_code, 65);
  EXPECT_NE(no_data.err.find("there is no test.h5\" hint=\"--data is"), std::string::npos) << no_data.err;
  EXPECT_EQ(run_program("evaluate " + run() + " --max-new-tokens 4000").exit_code, 64);
  const ProgramRun made =
      run_program("prepare --source synthetic --examples 300 --seed 3 --vocab-size 380 --output " +
                  file("other_tokenizer"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(run_program("evaluate " + run() + " --data " + file("other_tokenizer")).exit_code, 65);
}

// Of the keys that this version does not do, evaluate and summarize refuse only those of [generation].
TEST_F(EvaluateCommand, RefusesWaysToGenerateThatThisVersionDoesNotDo) {
  write_run(scratch_ / "beams", scratch_ / "data",
            "num_beams = 4\nno_repeat_ngram_size = 3\n[checkpoint]\nasynchronous = true\n");
  const std::string beams = file("beams");
  const std::string input = write("one.jsonl", "{\"document\": \"one\"}\n");
  const std::vector<std::string> commands = {
      "evaluate " + beams + " --limit 1 --output " + file("greedy"),
      "summarize " + beams + " --input " + input + " --output " + file("summary")};
  for (const std::string& command : commands) {
    const ProgramRun refused = run_program(command);
    EXPECT_EQ(refused.exit_code, 64) << command;
    EXPECT_NE(refused.err.find("generation.num_beams = 4, "), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("use instead: generation.num_beams = 1, generation.no_repeat_ngram_size = 0"),
              std::string::npos)
        << refused.err;
    EXPECT_EQ(refused.err.find("asynchronous"), std::string::npos) << refused.err;
    const ProgramRun greedy =
        run_program(command + " generation.num_beams=1 generation.no_repeat_ngram_size=0");
    EXPECT_EQ(greedy.exit_code, 0) << greedy.err;
    EXPECT_EQ(run_program(command + " precision.compute=bfloat16").exit_code, 64) << command;
    // Each of them alone, on the command line.
    for (const std::string setting :
         {"generation.num_beams=4", "generation.length_penalty=0.6", "generation.no_repeat_ngram_size=3"}) {
      const ProgramRun one =
          run_program(command + " generation.num_beams=1 generation.no_repeat_ngram_size=0 " + setting);
      EXPECT_EQ(one.exit_code, 64) << command << setting;
      EXPECT_NE(one.err.find("command line: " + setting.substr(0, setting.find('=')) + " = "),
                std::string::npos)
          << one.err;
    }
  }
}

TEST_F(EvaluateCommand, SummariesAreThePredictions) {
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 5 --output " + file("five")).exit_code, 0);
  const std::vector<json> predictions = lines_of(read_bytes(fs::path(file("five")) / "predictions.jsonl"));
  std::string documents;
  for (const json& prediction : predictions)
    documents += json{{"document", prediction.at("document")}, {"id", prediction.at("id")}}.dump() + "\n\n";
  const std::string input = write("documents.jsonl", documents);
  ASSERT_EQ(
      run_program("summarize " + run() + " --batch-size 2 --input " + input + " --output " + file("out"))
          .exit_code,
      0);
  const ProgramRun piped = run_program("summarize " + run() + " --batch-size 3", "cat " + input + " |");
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(piped.out, read_bytes(file("out")));
  const std::string fifo = file("fifo");
  EXPECT_EQ(run_program("summarize " + run() + " --batch-size 3 --input " + fifo,
                        "mkfifo " + fifo + " && { cat " + input + " >" + fifo + " & } ;")
                .out,
            piped.out);
  const std::vector<json> summaries = lines_of(piped.out);
  ASSERT_EQ(summaries.size(), predictions.size());
  for (size_t i = 0; i < summaries.size(); ++i) {
    EXPECT_EQ(summaries[i].at("summary"), predictions[i].at("summary"));
    EXPECT_EQ(summaries[i].at("id"), predictions[i].at("id"));
  }
}

TEST_F(EvaluateCommand, SummarizeRefusesBadLines) {
  const std::string bad = write("bad.jsonl", "{\"document\": \"fine\"}\n{\"text\": \"not\"}\n");
  const ProgramRun got = run_program("summarize " + run() + " --input " + bad + " --output " + file("none"));
  EXPECT_EQ(got.exit_code, 65);
  EXPECT_NE(got.err.find("bad.jsonl:2: no field 'document'"), std::string::npos) << got.err;
  EXPECT_FALSE(fs::exists(file("none")));
  EXPECT_EQ(run_program("summarize " + run() + " --input " + file("absent")).exit_code, 65);
  EXPECT_EQ(run_program("summarize " + run() + " --template 'no place'", "echo '{\"document\": \"d\"}' |")
                .exit_code,
            64);
  EXPECT_EQ(run_program("summarize " + run(), "printf '' |").out, "");
  const ProgramRun piped = run_program("summarize " + run(), "echo nonsense |");
  EXPECT_EQ(piped.exit_code, 65);
  EXPECT_NE(piped.err.find("not a JSON object"), std::string::npos) << piped.err;
  const ProgramRun nowhere =
      run_program("summarize " + run() + " --output " + file("no/such/folder"), "printf '' |");
  EXPECT_EQ(nowhere.exit_code, 74);
  EXPECT_NE(nowhere.err.find("cannot write"), std::string::npos) << nowhere.err;
  // The run is checked before standard input is read.
  EXPECT_EQ(run_program("summarize " + file("absent"), "echo nonsense |").exit_code, 74);
}

}  // namespace
}  // namespace ripstop
