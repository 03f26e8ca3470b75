// The program on a run of adapters, and on a config that makes one: evaluate, summarize, export, plan, check.
#include <functional>

#include "tests/expect_has.h"
#include "tests/train/commands/random_run.h"
#include "tests/train/exchange/peft_directory.h"
#include "tests/train/exchange/pretrained_directory.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class AdapterCommands : public RandomRun {
 protected:
  void SetUp() override {
    RandomRun::SetUp();
    model_.config["vocab_size"] = 400;
    model_.config["max_position_embeddings"] = 256;
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
      model_.tensor(name).shape[0] = 400;
    model_.fill("F32");
    model_.write();
    write("c.toml", "[run]\ndirectory = \"" + file("adapted") +
                        "\"\ndevice = \"cpu\"\n[model]\npretrained = \"" + model_.path().string() +
                        "\"\n[data]\ndirectory = \"" + file("data") +
                        "\"\nsequence_length = 128\n[train]\nsteps = 2\nglobal_batch_sequences = 2\n" +
                        "[optimizer]\nlearning_rate = 1e-2\n[precision]\ncompute = \"float32\"\n" +
                        "[lora]\nrank = 2\nalpha = 4\n");
  }
  static ProgramRun done(const std::string& arguments) {
    const ProgramRun run = run_program(arguments);
    EXPECT_EQ(run.exit_code, 0) << arguments << "\n" << run.err;
    return run;
  }
  static void expect_refused(const std::string& arguments, int code, const std::string& what) {
    const ProgramRun run = run_program(arguments);
    EXPECT_EQ(run.exit_code, code) << arguments << "\n" << run.err;
    EXPECT_HAS(run.err, what);
  }

  PretrainedDirectory model_;
};

// The verbs that need the base, each with what it computes of it.
TEST_F(AdapterCommands, ABaseThatHasMovedIsGivenByBase) {
  done("train " + file("c.toml"));
  const std::string documents = write("documents.jsonl", "{\"document\": \"the harbour\"}\n");
  struct Verb {
    std::string words;
    std::function<std::string(const ProgramRun&)> result;
  };
  int count = 0;
  const auto verbs = [&] {
    const std::string to = file("out" + std::to_string(count++));
    return std::vector<Verb>{
        {"evaluate " + file("adapted") + " --limit 2 --max-new-tokens 4 --json --output " + to + "scores",
         [](const ProgramRun& run) { return json::parse(run.out)["loss"].dump(); }},
        {"summarize " + file("adapted") + " --max-new-tokens 4 --input " + documents,
         [](const ProgramRun& run) { return run.out; }},
        {"checkpoint export " + file("adapted") + " " + to,
         [to](const ProgramRun&) { return read_bytes(fs::path(to) / "model.safetensors"); }}};
  };
  std::vector<std::string> expected;
  for (const Verb& verb : verbs()) expected.push_back(verb.result(done(verb.words)));

  const fs::path moved = scratch_ / "moved";
  fs::rename(model_.path(), moved);
  for (const Verb& verb : verbs()) {
    const ProgramRun refused = run_program(verb.words);
    EXPECT_EQ(refused.exit_code, 65) << verb.words;
    EXPECT_HAS(refused.err, "the model that the adapters were trained with is not there: " +
                                model_.path().string() + ": no such directory");
    EXPECT_HAS(refused.err, "--base");
    EXPECT_EQ(refused.out, "");
  }
  const std::vector<Verb> given = verbs();
  for (size_t v = 0; v < given.size(); ++v)
    EXPECT_EQ(given[v].result(done(given[v].words + " --base " + moved.string())), expected[v])
        << given[v].words;

  // What is named is the only place: another model is not passed over.
  fs::copy(moved, model_.path(), fs::copy_options::recursive);
  PretrainedDirectory other;
  other.config = model_.config;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) other.tensor(name).shape[0] = 400;
  other.fill("F32");
  char& last = other.tensor("lm_head.weight").values.back();
  last = static_cast<char>(last ^ 1);
  other.write();
  for (const Verb& verb : verbs())
    expect_refused(verb.words + " --base " + other.path().string(), 65,
                   other.path().string() + ": has other weights");
}

TEST_F(AdapterCommands, OnlyAdaptersHaveABase) {
  const std::string base = " --base " + model_.path().string();
  expect_refused("evaluate " + run() + base, 64, "has no adapters, which alone have a base");
  expect_refused("checkpoint export " + run() + " " + file("out") + base, 64, "has no adapters");
  expect_refused("summarize " + model_.path().string() + base, 64,
                 model_.path().string() + " has no adapters, which alone have a base");
}

TEST_F(AdapterCommands, AnExportForPeftDoesWithoutTheBase) {
  done("train " + file("c.toml"));
  const auto exported = [&](const std::string& to, const std::string& more) {
    done("checkpoint export --format peft " + file("adapted") + " " + file(to) + more);
    return read_bytes(scratch_ / to / "adapter_model.safetensors");
  };
  const auto base_in = [&](const std::string& to) {
    return json::parse(read_bytes(scratch_ / to / "adapter_config.json"))["base_model_name_or_path"]
        .get<std::string>();
  };
  const std::string expected = exported("with", "");
  EXPECT_EQ(base_in("with"), model_.path().string());
  fs::rename(model_.path(), scratch_ / "moved");
  EXPECT_EQ(exported("without", ""), expected);
  EXPECT_EQ(base_in("without"), model_.path().string());
  EXPECT_EQ(exported("named", " --base " + file("moved")), expected);
  EXPECT_EQ(base_in("named"), file("moved"));
  expect_refused("checkpoint export --format peft " + file("adapted") + " " + file("no") + " --base " + run(),
                 65, "has other weights");
  EXPECT_FALSE(fs::exists(scratch_ / "no"));
}

TEST_F(AdapterCommands, CheckTrainsAllWeightsAndSaysSo) {
  const json report = json::parse(done("check --small --json " + file("c.toml")).out);
  EXPECT_HAS(report["notes"].dump(),
             "[lora]: all weights of the checked model are trained, without adapters");
}

// plan and check refuse what train refuses of the adapters to begin with, until the run has begun.
TEST_F(AdapterCommands, AdaptersToBeginWithAreLookedAtBeforeTheRun) {
  const std::string config = file("c.toml");
  done("train " + config + " run.directory=" + file("first"));
  done("checkpoint export --format peft " + file("first") + " " + file("start"));
  const std::string start = " lora.adapter=" + file("start");
  const std::vector<std::string> all = {"plan " + config, "plan " + config + " --search --device-memory 8GiB",
                                        "check --small " + config, "train " + config};
  const auto refused_by_all = [&](const std::string& overrides, int code, const std::string& what) {
    for (const std::string& verb : all) expect_refused(verb + overrides, code, what);
  };
  refused_by_all(
      start + " lora.alpha=3", 64,
      "has rank = 2, alpha = 4, targets = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"], rslora = "
      "false, [lora] says rank = 2, alpha = 3");
  refused_by_all(" lora.adapter=" + file("nothing"), 65, "has no adapter_config.json");
  // Of a model with other sizes.
  PretrainedDirectory other;
  other.config["vocab_size"] = 400;
  other.config["max_position_embeddings"] = 256;
  other.config["num_hidden_layers"] = 1;
  const std::string second = "model.layers.1.";
  std::erase_if(other.tensors, [&](const auto& tensor) { return tensor.name.starts_with(second); });
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) other.tensor(name).shape[0] = 400;
  other.fill("F32");
  other.write();
  refused_by_all(start + " model.pretrained=" + other.path().string(), 65,
                 "has tensors that its targets do not have: ");
  EXPECT_FALSE(fs::exists(scratch_ / "adapted"));
  for (const std::string& verb : all) done(verb + start);
  // Now they are not needed any more.
  fs::remove_all(scratch_ / "start");
  for (const std::string& verb : all) done(verb + start);
}

}  // namespace
}  // namespace ripstop
