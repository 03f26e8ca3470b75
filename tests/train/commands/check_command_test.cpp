// `ripstop check` as a user types it, on one rank; on several: train.check_* and check_faults.sh.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

class CheckCommand : public testing::Test {
 protected:
  void SetUp() override {
    write_bytes(
        scratch_ / "config.toml",
        "[run]\ndirectory = \"" + (scratch_ / "run").string() +
            "\"\ndevice = \"cpu\"\n[data]\ndirectory = \"" + (scratch_ / "data").string() +
            "\"\nsequence_length = 96\n[model]\npreset = \"debug\"\nvocab_size = 400\n[train]\nsteps = 5\n"
            "global_batch_sequences = 32\n[optimizer]\nlearning_rate = 1e-3\n[precision]\ncompute = "
            "\"float32\"\n");
  }
  ProgramRun check(const std::string& arguments = "") const {
    return run_program("check " + (scratch_ / "config.toml").string() + " " + arguments);
  }

  ScratchDirectory scratch_;
};

TEST_F(CheckCommand, NeedsNoDataAndWritesNothing) {
  const ProgramRun run = expect_success(check());
  EXPECT_HAS(run.out, "mesh        replicate 1 x fsdp 1 x tensor 1 (1 rank), against one rank alone\n");
  EXPECT_HAS(run.out, "model       the config's: ");
  EXPECT_HAS(run.out, "in step 2 one sequence is empty\n");
  EXPECT_HAS(run.out, "holds: this mesh computes what one rank computes\n");
  EXPECT_EQ(run.out.find("FAILS"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run"));
}

TEST_F(CheckCommand, TheDocumentHasEveryError) {
  const ProgramRun run = expect_success(check("--json train.recompute=full precision.compute=bfloat16"));
  const Json document = Json::parse(run.out);
  EXPECT_EQ(document["verdict"], "holds");
  EXPECT_EQ(document["ranks"], 1);
  EXPECT_EQ(document["model"]["kind"], "whole");
  EXPECT_EQ(document["model"]["rope_type"], "default");
  EXPECT_EQ(document["recompute"], "full");
  EXPECT_EQ(document["recompute_alone"], "none");
  EXPECT_EQ(document["clipping"], true);
  EXPECT_EQ(document["worst"].size(), 6U);
  // Loss and norm of two steps; for each parameter two gradients and the update, whole and by block. The
  // debug model has 2 layers of 9 parameters, a norm and an embedding.
  EXPECT_EQ(document["values"].size(), 4U + 6U * 20U);
  for (const Json& value : document["values"]) {
    EXPECT_EQ(value["holds"], true) << value;
    EXPECT_LE(value["error"], value["tolerance"]) << value;
  }
  EXPECT_EQ(document["broken"], Json::array());
  EXPECT_EQ(document["sent_per_step"], Json::array());
}

TEST_F(CheckCommand, ASmallModelTakesItsPlace) {
  const ProgramRun small = expect_success(check("--small model.preset=15m model.vocab_size=32003"));
  EXPECT_HAS(small.out, "model       a small one of the same shape (--small asks for it): ");
  EXPECT_HAS(check("--small model.qk_norm=true").out, " pieces, tied, qk_norm true\n");
  // Neither the config nor a data set gives the vocabulary.
  std::string config = read_bytes(scratch_ / "config.toml");
  config.erase(config.find("vocab_size = 400\n"), 17);
  write_bytes(scratch_ / "config.toml", config);
  const ProgramRun unknown = expect_success(check("--small"));
  EXPECT_HAS(unknown.out, "says how many ids there are: 32000 are assumed\n");
}

TEST_F(CheckCommand, WhatTrainRefusesIsRefused) {
  const auto expect_refused = [&](const std::string& words, int code, const std::string& text) {
    const ProgramRun run = check(words);
    expect_exit(run, code, text);
    EXPECT_EQ(run.out, "") << words;
  };
  expect_refused("model.hiden_size=3", 64, "hiden_size");
  expect_refused("mesh.tensor=3", 78, "tensor");
  expect_refused("mesh.fsdp=2", 78, "needs 2 ranks, got 1");
  expect_refused("--minutes 0", 64, "--minutes");
  expect_refused("log.tensorboard=5", 64, "tensorboard");
  expect_exit(run_program("check " + (scratch_ / "no.toml").string()), 64, "no.toml");
}

// The vocabulary of an existing data set counts.
TEST_F(CheckCommand, TheDataSetGivesTheVocabulary) {
  expect_success(run_program("prepare --source synthetic --examples 200 --seed 1 --vocab-size 380 --output " +
                             (scratch_ / "data").string()));
  std::string config = read_bytes(scratch_ / "config.toml");
  config.erase(config.find("vocab_size = 400\n"), 17);
  write_bytes(scratch_ / "config.toml", config);
  const ProgramRun run = expect_success(check("--json"));
  EXPECT_EQ(Json::parse(run.out)["model"]["vocab_size"], 380);
  EXPECT_EQ(check("model.vocab_size=300").exit_code, 65);
}

}  // namespace
}  // namespace ripstop
