// Wrong command lines and configs, as a user sees them: the exit code, one FATAL line, no files left.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/machine/machine.h"

namespace ripstop {
namespace {

class BadConfig : public testing::Test {
 protected:
  // A correct config with one change: "section.key=value" sets a line, "section.key=" removes it.
  std::string config_with(const std::string& change) {
    std::string toml =
        "[run]\ndirectory = \"" + run().string() + "\"\n[model]\npreset = \"15m\"\n[data]\ndirectory = \"" +
        (scratch_ / "data").string() +
        "\"\nsequence_length = 256\n[train]\nsteps = 10\nglobal_batch_sequences = 8\n[optimizer]\n"
        "learning_rate = 1e-3\nbetas = [0.9, 0.95]\n[mesh]\ntensor = 1\n";
    const size_t dot = change.find('.');
    const size_t equals = change.find('=');
    const std::string title = "[" + change.substr(0, dot) + "]\n";
    if (toml.find(title) == std::string::npos) toml += title;
    const size_t section = toml.find(title);
    const std::string key = change.substr(dot + 1, equals - dot - 1);
    const size_t old = toml.find("\n" + key + " =", section);
    if (old != std::string::npos) toml.erase(old + 1, toml.find('\n', old + 1) - old);
    if (equals + 1 < change.size())
      toml.insert(toml.find('\n', section) + 1, key + " = " + change.substr(equals + 1) + "\n");
    return file(toml);
  }
  std::string file(const std::string& toml) {
    write_bytes(scratch_ / "config.toml", toml);
    return (scratch_ / "config.toml").string();
  }
  std::filesystem::path run() const { return scratch_ / "run"; }

  // train and plan must refuse alike, print one line, and make no run directory.
  void expect_refused(const std::string& arguments, int code, const std::string& what,
                      const std::string& hint = "") const {
    for (const std::string verb : {"train ", "plan "}) {
      const ProgramRun result = run_program(verb + arguments);
      EXPECT_EQ(result.exit_code, code) << verb << arguments << "\n" << result.err;
      EXPECT_EQ(result.out, "") << verb << arguments;
      const std::regex one_line("FATAL code=[0-9]+ rank=0 step=[^ ]+ what=\"[^\n]*\"( hint=\"[^\n]+\")?\n");
      EXPECT_TRUE(std::regex_match(result.err, one_line)) << result.err;
      EXPECT_HAS(result.err, what) << verb << arguments;
      EXPECT_HAS(result.err, hint) << verb << arguments;
      EXPECT_FALSE(std::filesystem::exists(run())) << verb << arguments;
    }
  }

  ScratchDirectory scratch_;
};

TEST_F(BadConfig, NoFileToRead) {
  expect_refused("", 64, "CONFIG is required");
  expect_refused("''", 64, "config file is required");
  expect_refused((scratch_ / "absent.toml").string(), 64, "absent.toml: cannot open: No such file");
  expect_refused(scratch_.path().string(), 64, "is a directory");
}

TEST_F(BadConfig, NoToml) {
  expect_refused(file("[run]\nseed = = 5\n"), 64, "config.toml:2:8: ");
  expect_refused(file("[run\n"), 64, "config.toml:1:");
  expect_refused(file("[optimizer]\nlearning_rate = 1\n\nlearning_rate = 2\n"), 64,
                 "config.toml:4: 'learning_rate' is given twice (lines 2 and 4)");
  expect_refused(file("x = " + std::string(100, '[') + std::string(100, ']') + "\n"), 64, "config.toml:1");
  expect_refused(file("x = " + std::string(3000, '[') + "\n"), 64, "config.toml:1:");
  expect_refused(file(std::string(2 << 20, '#')), 64, "larger than 1048576 bytes");
  expect_refused(file("[run]\ndirectory = \"\xC3\x28\"\n"), 64, "utf-8");
  expect_refused(file(std::string("[run]\nseed = 1\0\n", 16)), 64, "config.toml:2:");
  expect_refused(file(""), 64, "config.toml: 'run.directory' is required");
}

TEST_F(BadConfig, KeysAndTypes) {
  expect_refused(config_with("schedule.lr_warmpup=5"), 64, "unknown");
  expect_refused(config_with("train.stesp=5"), 64, "unknown key 'train.stesp'",
                 "did you mean 'train.steps'?");
  expect_refused(config_with("train.gradient_checkpointing=true"), 64, "'train.gradient_checkpointing'",
                 "'train.recompute'");
  expect_refused(config_with("model.num_hidden_layers=\"12a\""), 64,
                 "'model.num_hidden_layers' must be an integer, got \\\"12a\\\"");
  expect_refused(config_with("train.steps="), 64, "'train.steps' or 'train.epochs' is required");
  expect_refused(config_with("optimizer.learning_rate="), 64, "'optimizer.learning_rate' is required");
  // One message has all mistakes, of file and command line.
  expect_refused(config_with("train.stesp=5") + " run.sed=2", 64,
                 "unknown key 'train.stesp' (did you mean 'train.steps'?); command line: unknown key "
                 "'run.sed' (did you mean 'run.seed'?)",
                 "docs/config.md");
  expect_refused(config_with("precision.compute=\"bf16\""), 64, "got \\\"bf16\\\"",
                 "write compute = \\\"bfloat16\\\"");
  expect_refused(config_with("run.seed=1") + " run.sed=2", 64, "command line: unknown key 'run.sed'",
                 "'run.seed'");
  expect_refused(config_with("run.seed=1") + " run.seed", 64, "'run.seed' is not section.key=value");
  expect_refused(config_with("run.seed=1") + " --no-such-option", 64, "--no-such-option");
}

// Values of [lora] that are refused although the model exists.
TEST_F(BadConfig, Adapters) {
  const PretrainedDirectory model;
  model.write();
  const auto with_lora = [&](const std::string& lines) {
    return file("[run]\ndirectory = \"" + run().string() + "\"\n[model]\npretrained = \"" +
                model.path().string() + "\"\n[data]\ndirectory = \"" + (scratch_ / "data").string() +
                "\"\nsequence_length = 32\n[train]\nsteps = 10\nglobal_batch_sequences = 8\n[optimizer]\n"
                "learning_rate = 1e-3\n[lora]\n" +
                lines);
  };
  const std::string good = "rank = 2\nalpha = 4\n";
  expect_refused(with_lora(good + "targets = [\"lm_head\"]\n"), 64,
                 "config.toml:16: 'lora.targets' has \\\"lm_head\\\", which is none of \\\"q_proj\\\"");
  for (const char* key :
       {"use_dora = true", "rank_pattern = { q_proj = 4 }", "alpha_pattern = { q_proj = 4 }",
        "bias = \"all\"", "modules_to_save = [\"lm_head\"]"})
    expect_refused(with_lora(good + key + "\n"), 64, "config.toml:16: unknown key 'lora.",
                   "not in ripstop: ");
  expect_refused(with_lora(""), 64, "config.toml:13: [lora] is empty, so all weights would be trained",
                 "leave [lora] out");
  expect_refused(with_lora("rank = 2\n"), 64, "'lora.alpha' is required with a rank");
  expect_refused(with_lora("alpha = 4\n"), 64, "'lora.alpha' is of adapters, and there are none");
  expect_refused(with_lora(good + "dropout = 1.0\n"), 64, "'lora.dropout' must be at least 0 and below 1");
  expect_refused(config_with("lora.rank=2") + " lora.alpha=4", 64, "'model.pretrained' has none");
  // Mistakes that only the model shows. Only plan, because train would look at its data first.
  const ProgramRun large = run_program("plan " + with_lora("rank = 5\nalpha = 4\n"));
  expect_exit(large, 64, "lora.rank is 5, k_proj is [4, 8]");
  EXPECT_EQ(std::count(large.err.begin(), large.err.end(), '\n'), 1) << large.err;
}

// A memory without a unit is refused: nobody means 80 bytes.
TEST_F(BadConfig, MemoryHasAUnit) {
  const std::string plan = "plan " + config_with("mesh.fsdp=2") + " --device cpu --json --device-memory ";
  expect_exit(run_program(plan + "80"), 64, "did you mean --device-memory 80GiB?");
  EXPECT_EQ(run_program(plan + "much").exit_code, 64);
  EXPECT_EQ(run_program(plan + "1KiB").exit_code, 78);
  for (const auto& [text, bytes] : {std::pair<const char*, int64_t>{"80GiB", 80LL << 30},
                                    {"80G", 80LL << 30},
                                    {"80GB", 80'000'000'000},
                                    {"'80000 mb'", 80'000'000'000},
                                    {"0.08TB", 80'000'000'000},
                                    {"80000MiB", 80000LL << 20}}) {
    const ProgramRun run = run_program(plan + text + " --search");
    EXPECT_EQ(nlohmann::json::parse(run.out).at("device_memory"), bytes) << text;
  }
}

// The memory that CUDA's libraries take is not free for the plan.
TEST_F(BadConfig, APlanForAGpuLeavesRoomForLibraries) {
  const std::string plan = "plan " + config_with("mesh.fsdp=2") + " --device-memory ";
  EXPECT_EQ(run_program(plan + "2GiB --device cpu").exit_code, 0);
  EXPECT_EQ(run_program(plan + "4GiB --device cuda").exit_code, 0);
  expect_exit(run_program(plan + "2GiB --device cuda"), 78,
              "a rank of 2.0 GiB, of which CUDA's libraries take 3.0 GiB");
}

// Ranks of a node share its cores. The number of threads matters, because workspaces grow with it.
TEST_F(BadConfig, PlansDealOutTheCores) {
  const std::string plan = "plan " + config_with("mesh.fsdp=4") + " --device cpu --json --ntasks-per-node 4";
  const auto threads = [](const ProgramRun& run) {
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const size_t at = run.out.find("\"threads_per_rank\": ");
    return at == std::string::npos ? ""
                                   : run.out.substr(at + 20, run.out.find_first_of(",\n}", at) - at - 20);
  };
  const std::string cores = std::to_string(std::max<int64_t>(1, read_machine().cores_allowed / 4));
  EXPECT_EQ(threads(run_program(plan, "env -u OMP_NUM_THREADS")), cores);
  EXPECT_EQ(threads(run_program(plan, "OMP_NUM_THREADS=3")), "3");
  EXPECT_EQ(threads(run_program(plan + " --cpus-per-task 7", "OMP_NUM_THREADS=3")), "7");
}

TEST_F(BadConfig, ImpossibleValues) {
  for (const char* change :
       {"optimizer.learning_rate=0", "optimizer.learning_rate=-1e-3", "optimizer.learning_rate=nan",
        "optimizer.learning_rate=inf", "optimizer.learning_rate=1e-320", "optimizer.betas=[0.9, 1.0]",
        "optimizer.betas=[0.9, 0.999999999]", "data.sequence_length=1073741824", "train.steps=-1",
        "train.steps=0", "run.seed=18446744073709551616", "model.hidden_size=290",
        "model.num_key_value_heads=4", "data.sequence_length=257", "model.preset=\"llama3-8b\"",
        "mesh.tensor=0", "train.micro_batch_sequences=9", "train.global_batch_sequences=0"})
    expect_refused(config_with(change), 64, "config.toml:");
}

TEST_F(BadConfig, MeshesThatCannotBe) {
  expect_refused(config_with("mesh.tensor=4"), 78, "does not divide 6 query and 6 key-value heads",
                 "1, 2, 3, 6");
}

TEST_F(BadConfig, MeshThatDoesNotFitTheRanks) {
  const ProgramRun result =
      run_program("plan " + config_with("mesh.fsdp=4") + " mesh.tensor=2 --nodes 1 --ntasks-per-node 6");
  expect_exit(result, 78, "fsdp 4 x tensor 2");
  EXPECT_HAS(result.err, "6");
}

TEST_F(BadConfig, BatchThatDoesNotDivideIsAccepted) {
  expect_success(run_program("plan " + config_with("mesh.fsdp=3") +
                             " model.vocab_size=512 --nodes 1 --ntasks-per-node 3"));
}

}  // namespace
}  // namespace ripstop
