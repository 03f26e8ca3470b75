// Values that a config may not have.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

using testing::expect_usage;
using testing::kSmallest;
using testing::Refusal;
using testing::refusal;
using testing::with;

TEST(ConfigValues, WrongTypesAreNamed) {
  expect_usage(refusal(with("model", "num_hidden_layers = \"12a\"")),
               "x.toml:5: 'model.num_hidden_layers' must be an integer, got \"12a\"");
  expect_usage(refusal(with("train", "steps = 1.5")), "'train.steps' must be an integer, got 1.5");
  expect_usage(refusal(with("data", "pack = 1")), "'data.pack' must be true or false, got 1");
  expect_usage(refusal(with("mesh", "fsdp = \"all\"")),
               "'mesh.fsdp' must be an integer or \"auto\", got \"all\"");
  expect_usage(refusal(with("mesh", "overlap_tensor = 1")), "true, false or \"auto\"");
  expect_usage(refusal(with("precision", "compute = \"fp16\"")), "must be one of \"bfloat16\", \"float32\"");
  expect_usage(refusal(with("optimizer", "betas = [0.9]")), "an array of two numbers");
  expect_usage(refusal(with("optimizer", "betas = [0.9, \"x\"]")), "an array of two numbers");
  expect_usage(refusal(with("run", "directory = 5")), "'run.directory' must be a string");
  expect_usage(refusal(with("train", "steps = { a = 1 }")), "got a table");
  expect_usage(refusal(with("run", "seed = 2024-01-01")), "'run.seed' must be an integer");
}

TEST(ConfigValues, ImpossibleValuesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"optimizer", "learning_rate = 0"},
      {"optimizer", "learning_rate = -1"},
      {"optimizer", "learning_rate = nan"},
      {"optimizer", "learning_rate = inf"},
      {"optimizer", "betas = [0.9, 1.0]"},
      {"optimizer", "betas = [-0.1, 0.9]"},
      {"optimizer", "epsilon = 0"},
      {"optimizer", "weight_decay = -0.1"},
      {"train", "steps = 0"},
      {"train", "steps = -5"},
      {"train", "global_batch_sequences = 0"},
      {"train", "micro_batch_sequences = 0"},
      {"train", "max_grad_norm = inf"},
      {"data", "sequence_length = 1"},
      {"mesh", "tensor = 0"},
      {"mesh", "replicate = -2"},
      {"run", "seed = -1"},
      {"schedule", "minimum_ratio = 1.5"},
      {"generation", "num_beams = 0"},
      {"log", "every_steps = 0"},
      {"train", "micro_batch_sequences = 9"},
      {"schedule", "warmup_steps = 101"},
      {"run", "profile_steps = \"12-10\""},
      {"run", "profile_steps = \"12\""},
      {"run", "profile_steps = \"0-3\""},
      {"run", "profile_steps = \"1-\""},
      {"run", "profile_steps = \"+1-3\""},
      {"run", "profile_steps = \"1--3\""},
      {"run", "profile_steps = \" 1-3\""},
      {"run", "profile_steps = \"1-99999999999999999999\""},
      {"run", "profile_steps = \"99-101\""},
      {"run", "profile_steps = \"x\""},
      {"model", "hidden_size = 290"},
      {"model", "num_key_value_heads = 5"},
      {"data", "sequence_length = 257"},
      {"checkpoint", "keep_best = \"rougeL\""},
      {"model", "preset = \"16m\""},
      {"run", "directory = \"a\\u0000b\""},
  };
  for (const auto& [section, line] : cases) {
    const Refusal result = refusal(with(section, line));
    EXPECT_EQ(result.code, ExitCode::kUsage) << line;
    EXPECT_HAS(result.what, line.substr(0, line.find(' '))) << line;
    EXPECT_HAS(result.what, "x.toml:") << line;
  }
  expect_usage(refusal(with("run", "seed = 18446744073709551616")), "64 bits");
}

TEST(ConfigValues, TensorThatDoesNotDivideTheHeadsIsAResource) {
  const Refusal result = refusal(with("mesh", "tensor = 4"));
  EXPECT_EQ(result.code, ExitCode::kResources);
  EXPECT_HAS(result.what, "mesh.tensor 4 does not divide 6 query and 6 key-value heads");
  EXPECT_HAS(result.hint, "1, 2, 3, 6");
}

TEST(ConfigValues, RequiredKeysAreNamed) {
  for (const char* path : {"run.directory", "data.directory", "data.sequence_length",
                           "train.global_batch_sequences", "optimizer.learning_rate", "train.steps"}) {
    std::string toml = kSmallest;
    const std::string section = std::string(path).substr(0, std::string(path).find('.'));
    const std::string name = std::string(path).substr(section.size() + 1);
    const size_t begin = toml.find("\n" + name + " =", toml.find("[" + section + "]"));
    toml.erase(begin, toml.find('\n', begin + 1) - begin);
    expect_usage(refusal(toml), path);
  }
  expect_usage(refusal("[run]\ndirectory='a'\n[data]\ndirectory='b'\nsequence_length=8\n"
                       "[train]\nsteps=1\nglobal_batch_sequences=1\n[optimizer]\nlearning_rate=1\n"),
               "[model] needs a preset or sizes", "preset");
  expect_usage(refusal(""), "required");
}

}  // namespace
}  // namespace ripstop
