// `ripstop plan` on a data set and beside a run: what it says is what the run then does.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/train/commands/run_program.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

class PlanCommand : public testing::Test {
 protected:
  void SetUp() override {
    const ProgramRun data =
        run_program("prepare --source synthetic --examples 200 --seed 1 --vocab-size 400 --output " +
                    (scratch_ / "data").string());
    ASSERT_EQ(data.exit_code, 0) << data.err;
    write_bytes(scratch_ / "config.toml",
                "[run]\ndirectory = \"" + run().string() + "\"\ndevice = \"cpu\"\n[data]\ndirectory = \"" +
                    (scratch_ / "data").string() +
                    "\"\nsequence_length = 96\n[model]\npreset = \"debug\"\n[train]\nepochs = 1\n"
                    "global_batch_sequences = 32\n[optimizer]\nlearning_rate = 1e-3\n[precision]\ncompute = "
                    "\"float32\"\n");
  }
  std::filesystem::path run() const { return scratch_ / "run"; }
  std::string config() const { return (scratch_ / "config.toml").string(); }
  ProgramRun plan(const std::string& arguments = "") const {
    return run_program("plan " + config() + " --cpus-per-task 1 " + arguments);
  }
  Json plan_json(const std::string& arguments = "") const {
    const ProgramRun result = plan("--json " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out);
  }

  ScratchDirectory scratch_;
};

// The line of `text` that begins with `begin`, without that; "" if there is none.
std::string line_of(const std::string& text, const std::string& begin) {
  const size_t at = ("\n" + text).find("\n" + begin);
  if (at == std::string::npos) return "";
  const size_t from = text.find_first_not_of(' ', at + begin.size());
  return text.substr(from, text.find('\n', from) - from);
}

TEST_F(PlanCommand, ThePlanIsWhatTheRunDoes) {
  const Json before = plan_json();
  EXPECT_GT(before["data"]["cut_documents"], 0) << before;
  EXPECT_GT(before["data"]["cut_tokens"], 0);
  EXPECT_EQ(before["run"]["epochs"], 1);
  EXPECT_TRUE(before["time"].is_null());  // nothing has run yet, and no speed is invented
  EXPECT_EQ(before["checkpoint"]["most_on_disk"], 4);

  const std::string text = plan().out;
  const ProgramRun trained = run_program("train " + config());
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const char* name : {"data", "epoch", "run", "checkpoint"}) {
    EXPECT_NE(line_of(text, name), "") << text;
    EXPECT_EQ(line_of(text, name), line_of(trained.out, std::string(name) + ":")) << name;
  }
  EXPECT_NE(line_of(text, "data").find(" cut to 96 tokens"), std::string::npos) << text;

  const MetricsLog log = read_metrics(run() / "metrics.jsonl");
  const DataUse& use = log.starts.at(0).data;
  EXPECT_EQ(before["data"]["examples"], use.examples);
  EXPECT_EQ(before["data"]["cut_documents"], use.cut_documents);
  EXPECT_EQ(before["data"]["cut_tokens"], use.cut_tokens);
  EXPECT_EQ(before["data"]["sequences_per_epoch"], use.sequences_per_epoch);
  EXPECT_EQ(before["data"]["tokens_per_epoch"], use.tokens_per_epoch);
  EXPECT_EQ(before["run"]["steps"], log.steps.back().step);
  EXPECT_EQ(before["run"]["tokens"], log.steps.back().tokens_seen);
  // Headers and hashes of the files are a few KiB.
  const auto planned = before["checkpoint"]["bytes"].get<int64_t>();
  EXPECT_EQ(planned, log.starts.at(0).checkpoint_bytes);
  EXPECT_GE(log.checkpoints.at(0).bytes, planned);
  EXPECT_LT(log.checkpoints.at(0).bytes, planned + 65536);

  // Now the speed is known, from the run itself.
  const Json after = plan_json("train.epochs=3");
  ASSERT_FALSE(after["time"].is_null()) << after;
  EXPECT_GT(after["time"]["tokens_per_second"], 0);
  EXPECT_TRUE(after["time"]["utilization"].is_null());
  EXPECT_NE(line_of(plan("train.epochs=3").out, "time").find("left at "), std::string::npos);
  EXPECT_TRUE(plan_json("--ntasks-per-node 2")["time"].is_null());  // two ranks have another speed
}

TEST_F(PlanCommand, WithoutADataSetOnlyWhatIsKnown) {
  const Json steps = plan_json("data.directory=/no/such/data model.vocab_size=400 train.steps=7");
  EXPECT_TRUE(steps["data"].is_null());
  EXPECT_EQ(steps["run"]["steps"], 7);
  EXPECT_TRUE(steps["run"]["tokens"].is_null());
  const std::string slip = "data.directory=" + (scratch_ / "dta").string();
  const std::string near = (scratch_ / "data").string() + "?";
  EXPECT_NE(plan(slip + " model.vocab_size=400").out.find("; did you mean " + near), std::string::npos);
  EXPECT_NE(plan(slip).err.find("did you mean data.directory=" + near), std::string::npos);
  const Json epochs = plan_json("data.directory=/no/such/data model.vocab_size=400 checkpoint.keep=0");
  EXPECT_TRUE(epochs["run"]["steps"].is_null());
  EXPECT_TRUE(epochs["checkpoint"]["most_bytes"].is_null());
  EXPECT_GT(epochs["checkpoint"]["bytes"], 0);
}

// What train refuses because of the data set, plan refuses too.
TEST_F(PlanCommand, WhatTheDataSetRulesOutIsRefused) {
  const ProgramRun nothing = plan("data.sequence_length=2");
  EXPECT_EQ(nothing.exit_code, 64) << nothing.out;
  EXPECT_NE(nothing.err.find("nothing to learn"), std::string::npos) << nothing.err;
  const ProgramRun warm_up = plan("schedule.warmup_steps=100000");
  EXPECT_EQ(warm_up.exit_code, 64) << warm_up.out;
  EXPECT_NE(warm_up.err.find("steps that train.epochs come to"), std::string::npos) << warm_up.err;
}

// train refuses it (65). A plan needs no tokenizer, so it says so and goes on.
TEST_F(PlanCommand, AnotherTokenizerIsANote) {
  EXPECT_EQ(plan().out.find("train will refuse the data set"), std::string::npos);
  const ProgramRun other =
      run_program("prepare --source synthetic --examples 200 --seed 1 --vocab-size 380 --output " +
                  (scratch_ / "other").string());
  ASSERT_EQ(other.exit_code, 0) << other.err;
  std::filesystem::copy_file(scratch_ / "other/tokenizer.model", scratch_ / "data/tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  const ProgramRun noted = plan();
  EXPECT_EQ(noted.exit_code, 0) << noted.err;
  EXPECT_NE(noted.out.find("note: train will refuse the data set: "), std::string::npos) << noted.out;
  EXPECT_EQ(run_program("train " + config()).exit_code, 65);
  std::filesystem::remove(scratch_ / "data/tokenizer.model");
  EXPECT_NE(plan().out.find("note: train will refuse the data set: "), std::string::npos);
}

TEST_F(PlanCommand, APlanThatIsTooLargeSaysWhatWouldFit) {
  const Json one = plan_json();
  EXPECT_TRUE(one["fits"].is_null());  // no memory was given
  const int64_t need = one["memory"]["total"];
  const std::string memory = "--device-memory " + std::to_string((need - 1) / 1024) + "KiB";
  EXPECT_EQ(plan_json("--device-memory 80GiB")["fits"], true);

  const ProgramRun large = plan("--json train.micro_batch_sequences=32 --ntasks-per-node 1 " + memory);
  EXPECT_EQ(large.exit_code, 78);
  EXPECT_NE(large.err.find("these fit: "), std::string::npos) << large.err;
  const Json document = Json::parse(large.out);
  EXPECT_EQ(document["fits"], false);
  EXPECT_EQ(document["refused"]["micro_batch_sequences"], 32);
  EXPECT_GT(document["refused"]["bytes"], document["device_memory"]);
  const Json& other = document["would_fit"]["same_ranks"].at(0);
  EXPECT_EQ(document["would_fit"]["least"]["bytes"], document["would_fit"]["device_memory"]);
  // It does fit.
  EXPECT_EQ(
      plan(fmt::format("train.micro_batch_sequences={} ", other["micro_batch_sequences"].get<int64_t>()) +
           memory)
          .exit_code,
      0);
}

}  // namespace
}  // namespace ripstop
