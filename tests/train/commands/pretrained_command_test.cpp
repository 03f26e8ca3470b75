// The program on a model of Hugging Face: import, evaluate, summarize, plan.
#include "tests/expect_has.h"
#include "tests/train/commands/random_run.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/checkpoint/manifest.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

class PretrainedCommands : public RandomRun {
 protected:
  void SetUp() override {
    RandomRun::SetUp();
    model_.resize(400, 256);
    model_.fill("F32");
    model_.write();
  }
  std::string path(const std::string& name) const { return (scratch_ / name).string(); }
  std::string model() const { return model_.path().string(); }
  static void expect_refused(const std::string& arguments, int code, const std::string& what) {
    expect_exit(run_program(arguments), code, what);
  }

  PretrainedDirectory model_;
};

TEST_F(PretrainedCommands, ImportMakesACheckpoint) {
  std::filesystem::copy(scratch_ / "data" / "tokenizer.model", model_.path() / "tokenizer.model");
  const ProgramRun imported = expect_success(run_program("checkpoint import " + model() + " " + path("out")));
  EXPECT_HAS(imported.out, "model.pretrained=" + path("out") + " begins a run with its weights");
  EXPECT_EQ(run_program("checkpoint verify " + path("out")).exit_code, 0);
  // The model and its import have the same scores.
  const std::string rest = " --data " + path("data") + " --limit 3 --max-new-tokens 4 --json --output ";
  const ProgramRun theirs = run_program("evaluate " + model() + rest + path("theirs"));
  const ProgramRun ours = run_program("evaluate " + path("out") + rest + path("ours"));
  ASSERT_EQ(theirs.exit_code, 0) << theirs.err;
  ASSERT_EQ(ours.exit_code, 0) << ours.err;
  EXPECT_EQ(nlohmann::json::parse(theirs.out)["loss"], nlohmann::json::parse(ours.out)["loss"]);
  EXPECT_EQ(read_bytes(scratch_ / "theirs" / "predictions.jsonl"),
            read_bytes(scratch_ / "ours" / "predictions.jsonl"));
  // Texts of the import end at the model's ids.
  write_bytes(model_.path() / "generation_config.json", R"({"eos_token_id": [9, 399]})");
  ASSERT_EQ(run_program("checkpoint import " + model() + " " + path("ends")).exit_code, 0);
  Io io;
  EXPECT_HAS(read_manifest(io, scratch_ / "ends" / "checkpoints" / step_directory_name(0)).state.config,
             "eos_token_id = [9, 399]");
  ASSERT_EQ(run_program("checkpoint export " + path("ends") + " " + path("ends-out")).exit_code, 0);
  for (const char* name : {"config.json", "generation_config.json"})
    EXPECT_EQ(nlohmann::json::parse(read_bytes(scratch_ / "ends-out" / name))["eos_token_id"],
              nlohmann::json({2, 9, 399}));
  std::filesystem::remove(model_.path() / "generation_config.json");
  // No verb writes into the directory of the model.
  EXPECT_FALSE(std::filesystem::exists(model_.path() / "evaluation"));
  const std::string documents = path("documents.jsonl");
  write_bytes(documents, "{\"document\": \"a b\"}\n");
  const ProgramRun written = run_program("summarize " + path("out") + " --input " + documents +
                                         " --max-new-tokens 4 --template '{document} TL;DR:'");
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_HAS(written.out, "\"summary\"");
  expect_refused("summarize " + model() + " --input " + documents, 64, "does not say which prompt");
  expect_refused("summarize " + model() + "/model.safetensors --input " + documents, 64,
                 "it is a file of a model: give its directory, " + model());
  // README.md of the export names the origin of the weights.
  ASSERT_EQ(run_program("checkpoint export " + path("out") + " " + path("back")).exit_code, 0);
  EXPECT_HAS(read_bytes(scratch_ / "back" / "README.md"),
             "not trained by it: the weights are those of `" + model());
  // --device works with an import, too.
  expect_success(run_program("evaluate " + path("out") + rest + path("cpu") + " --device cpu"));
}

// plan warns of another tokenizer, with which fine-tuning would give nonsense.
TEST_F(PretrainedCommands, PlanComparesTheTokenizers) {
  const std::string config = path("c.toml");
  write_bytes(config, "[run]\ndirectory = \"" + path("new") +
                          "\"\ndevice = \"cpu\"\n[model]\npretrained = \"" + model() +
                          "\"\n[data]\ndirectory = \"" + path("data") +
                          "\"\nsequence_length = 128\n[train]\nsteps = 2\nglobal_batch_sequences = 2\n" +
                          "[optimizer]\nlearning_rate = 1e-3\n");
  const ProgramRun unknown = expect_success(run_program("plan " + config));
  EXPECT_HAS(unknown.out,
             "and no tokenizer.json: whether the data set " + path("data") + " has its tokenizer was");
  std::filesystem::copy(scratch_ / "data" / "tokenizer.model", model_.path() / "tokenizer.model");
  const ProgramRun same = run_program("plan " + config);
  EXPECT_EQ(same.out.find("tokenizer"), std::string::npos) << same.out;
  EXPECT_EQ(same.out.find("end with the token"), std::string::npos) << same.out;
  write_bytes(model_.path() / "generation_config.json", R"({"eos_token_id": [9, 399]})");
  const std::string ends = "summaries of the data set end with the token 2 </s>, texts of " + model() +
                           " at 9, 399: the run learns the first, and its texts end at any of these";
  EXPECT_HAS(run_program("plan " + config).out, ends);
  EXPECT_EQ(run_program("plan " + config + " generation.eos_token_id=2").out.find(ends), std::string::npos);
  expect_refused("plan " + config + " generation.eos_token_id=400", 64, "the model has the ids 0 to 399");
  write_bytes(model_.path() / "generation_config.json", R"({"eos_token_id": [9, 2]})");
  EXPECT_EQ(run_program("plan " + config).out, same.out);
  ASSERT_EQ(run_program("prepare --source synthetic --examples 500 --seed 9 --vocab-size 380 --output " +
                        path("other"))
                .exit_code,
            0);
  const std::string other = config + " data.directory=" + path("other");
  const ProgramRun warned = expect_success(run_program("plan " + other));
  EXPECT_HAS(warned.out, "note: train will refuse the data set: the data set " + path("other") +
                             " has another tokenizer (SHA-256 ");
  EXPECT_HAS(warned.out, "ripstop prepare --tokenizer " + model() + " makes a data set for it");
  expect_refused("train " + other, 65, "has another tokenizer (SHA-256 ");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "new"));
}

TEST_F(PretrainedCommands, WrongPathsOfAModelAreAnswered) {
  const std::string config = path("c.toml");
  write_bytes(config, "[run]\ndirectory = \"" + path("new") + "\"\n[model]\npreset = \"debug\"\n" +
                          "[data]\ndirectory = \"" + path("data") +
                          "\"\nsequence_length = 128\n[train]\nsteps = 2\nglobal_batch_sequences = 2\n" +
                          "[optimizer]\nlearning_rate = 1e-3\n");
  expect_refused("plan " + config + " model.pretrained=" + model() + "/model.safetensors", 64,
                 "it is a file of a model: give its directory, model.pretrained=" + model());
  expect_refused("plan " + config + " model.pretrained=" + path("data") + "/train.h5", 64,
                 "give the directory that has the model's config.json");
  expect_refused("plan " + config + " model.pretrained=", 64, "command line: 'model.pretrained' is empty");
  expect_refused("plan " + config + " model.pretrained=", 64, "is a shell variable not set?");
}

TEST_F(PretrainedCommands, ImportRefuses) {
  expect_refused("checkpoint import " + path("run") + " " + path("out"), 64,
                 "is a checkpoint of ripstop already");
  expect_refused("checkpoint import " + model() + " " + path("run"), 64, path("run"));
  expect_refused("checkpoint import " + path("absent") + " " + path("out"), 64, "no such directory");
  model_.tensor("lm_head.weight").shape = {400, 7};
  model_.fill("F32");
  model_.write();
  expect_refused("checkpoint import " + model() + " " + path("out"), 65, "lm_head.weight is [400, 7]");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
}

TEST_F(PretrainedCommands, EveryVerbSaysWhatItLeavesOutOfTheNames) {
  std::filesystem::copy(scratch_ / "data" / "tokenizer.model", model_.path() / "tokenizer.model");
  for (TensorToWrite& tensor : model_.tensors) tensor.name = "module." + tensor.name;
  model_.write();
  write_bytes(path("c.toml"), "[run]\ndirectory = \"" + path("new") +
                                  "\"\ndevice = \"cpu\"\n[model]\npretrained = \"" + model() +
                                  "\"\n[data]\ndirectory = \"" + path("data") +
                                  "\"\nsequence_length = 128\n[train]\nsteps = 1\n" +
                                  "global_batch_sequences = 1\n[optimizer]\nlearning_rate = 1e-3\n");
  write_bytes(path("in.jsonl"), "{\"document\": \"a b\"}\n");
  for (const std::string& verb :
       {"plan " + path("c.toml"), "train " + path("c.toml"),
        "evaluate " + model() + " --limit 1 --data " + path("data") + " --output " + path("scores"),
        "summarize " + model() + " --max-new-tokens 2 --template '{document}:' --input " + path("in.jsonl"),
        "checkpoint import " + model() + " " + path("out")}) {
    const ProgramRun run = expect_success(run_program(verb));
    EXPECT_HAS(run.out + run.err,
               "note: " + model() + ": all names of tensors begin with 'module.', which is left out");
  }
}

// A damaged file of settings hides nothing of the model, and no verb that needs it goes on.
TEST_F(PretrainedCommands, ADamagedGenerationConfigIsTold) {
  for (const char* bad : {"{", "[]", R"({"eos_token_id": "2"})", R"({"eos_token_id": [2, 1.5]})"}) {
    write_bytes(model_.path() / "generation_config.json", bad);
    const ProgramRun run = expect_success(run_program("checkpoint inspect " + model()));
    EXPECT_HAS(run.out, "texts end   damaged: " + model() + "/generation_config.json: ");
    EXPECT_HAS(run.out, "verdict     readable");
    const auto json = nlohmann::json::parse(run_program("checkpoint inspect --json " + model()).out);
    EXPECT_TRUE(json.at("end_tokens").is_null());
    expect_refused("checkpoint import " + model() + " " + path("out"), 65, "generation_config.json: ");
  }
  write_bytes(model_.path() / "generation_config.json", R"({"eos_token_id": 7})");
  ASSERT_EQ(run_program("checkpoint import " + model() + " " + path("out")).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(run_program("checkpoint inspect --json " + path("out")).out)["end_tokens"],
            nlohmann::json({7}));
}

TEST_F(PretrainedCommands, AnEvaluationNeedsAPlaceAndADataSet) {
  expect_refused("evaluate " + model(), 64, "is a pretrained model, not a run: --data is required");
  expect_refused("evaluate " + model() + " --data " + path("data"), 64, "--output is required");
  write_bytes(model_.path() / "tokenizer.model", "no model");
  expect_refused("evaluate " + model() + " --data " + path("data") + " --output " + path("scores"), 65,
                 "tokenizer.model");
}

TEST_F(PretrainedCommands, PlanKnowsItsSizes) {
  const std::string config = path("c.toml");
  write_bytes(config, "[run]\ndirectory = \"" + path("new") +
                          "\"\ndevice = \"cpu\"\n[model]\npretrained = \"" + model() +
                          "\"\n[data]\ndirectory = \"" + path("data") +
                          "\"\nsequence_length = 256\n[train]\nsteps = 2\nglobal_batch_sequences = 2\n" +
                          "[optimizer]\nlearning_rate = 1e-3\n");
  const ProgramRun plan = expect_success(run_program("plan " + config));
  EXPECT_HAS(plan.out,
             "parameters      " + std::to_string(parameter_count(open_pretrained_model(model()).config)));
  EXPECT_HAS(plan.out, "model           " + model_text(open_pretrained_model(model()).config) + "\n");
  expect_refused("plan " + config + " data.sequence_length=512", 64, "exceeds the 256 positions");
  // The one key-value head of the model is known only here.
  expect_refused("plan " + config + " mesh.tensor=2 --ntasks-per-node 2", 78, "tensor");
  expect_refused("plan " + config + " model.pretrained=meta-llama/Llama-2-7b-hf", 64,
                 "hf download meta-llama/Llama-2-7b-hf");
  // The setting of the shipped configs.
  expect_refused("plan " + config + " model.pretrained=models/Llama-2-7b-hf", 64,
                 "give a directory with config.json and model.safetensors");
}

}  // namespace
}  // namespace ripstop
