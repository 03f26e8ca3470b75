// Values that a config cannot have.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/expect_has.h"
#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

using small_config::expect_usage;
using small_config::kSmallest;
using small_config::parsed;
using small_config::refusal;
using small_config::with;

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

// Booleans, which older runs have stored, and "auto", the default.
TEST(ConfigValues, UnitsAreReshardedKeptOrAsTheyFit) {
  using Reshard = std::optional<bool>;
  const auto reshards = [](const std::string& value) {
    const RunConfig config = parsed(with("train", "reshard_after_forward = " + value));
    EXPECT_EQ(parse_run_config(to_toml(config), "written"), config);
    return config.train.reshard_after_forward;
  };
  EXPECT_EQ(reshards("true"), Reshard(true));
  EXPECT_EQ(reshards("false"), Reshard(false));
  EXPECT_EQ(reshards("\"auto\""), Reshard());
  EXPECT_EQ(parsed(kSmallest).train.reshard_after_forward, Reshard());
  EXPECT_EQ(parsed(kSmallest, {"train.reshard_after_forward=auto"}).train.reshard_after_forward, Reshard());
  expect_usage(refusal(with("train", "reshard_after_forward = \"no\"")),
               "'train.reshard_after_forward' must be true, false or \"auto\", got \"no\"");
}

TEST(ConfigValues, EndTokensAreAnIdOrAList) {
  using Ids = std::vector<int32_t>;
  const auto ends = [](const std::string& value) {
    const RunConfig config = parsed(with("generation", "eos_token_id = " + value));
    EXPECT_EQ(parse_run_config(to_toml(config), "written"), config);
    return config.generation.eos_token_id;
  };
  EXPECT_EQ(ends("2"), Ids{2});
  EXPECT_EQ(ends("[331, 2, 331]"), (Ids{2, 331}));
  EXPECT_EQ(ends("[]"), Ids{});
  for (const char* given : {"331,2", "[2, 331]"})
    EXPECT_EQ(parsed(kSmallest, {"generation.eos_token_id=" + std::string(given)}).generation.eos_token_id,
              (Ids{2, 331}));
  EXPECT_EQ(parsed(kSmallest, {"generation.eos_token_id=2"}).generation.eos_token_id, Ids{2});
  for (const char* value : {"\"</s>\"", "[2.5]", "true", "[\"2\"]", "[[2]]", "[nan]"})
    expect_usage(refusal(with("generation", "eos_token_id = " + std::string(value))),
                 "'generation.eos_token_id' must be an integer or an array of integers, got ");
  expect_usage(refusal(with("generation", "eos_token_id = [2, -1]")),
               "'generation.eos_token_id' must be at least 0 and at most 16777216, got [2, -1]");
  std::string most;  // of the longest ids: they fit into a line
  for (size_t i = 0; i < GenerationSettings::kMostEndTokens; ++i)
    most += fmt::format("{}{}", i == 0 ? "" : ", ", 16777216 - i);
  EXPECT_EQ(ends("[" + most + "]").size(), GenerationSettings::kMostEndTokens);
  expect_usage(refusal(with("generation", "eos_token_id = [1, " + most + "]")), "has 401 ids, at most 400");
  EXPECT_HAS(refusal(with("generation", "stop_token_ids = [2]")).hint(), "'generation.eos_token_id'");
}

TEST(ConfigValues, LayersOfStagesAreAListOrAuto) {
  using Layers = std::vector<int64_t>;
  const auto layers = [](const std::string& value) {
    const RunConfig config = parsed(with("mesh", "pipeline_layers = " + value));
    EXPECT_EQ(parse_run_config(to_toml(config), "written"), config);
    return config.mesh.pipeline_layers;
  };
  EXPECT_EQ(parsed(kSmallest).mesh.pipeline, 1);
  EXPECT_EQ(parsed(kSmallest).mesh.pipeline_layers, std::nullopt);
  EXPECT_EQ(layers("\"auto\""), std::nullopt);
  EXPECT_EQ(layers("[2]"), Layers{2});
  EXPECT_EQ(parsed(kSmallest, {"mesh.pipeline_layers=2"}).mesh.pipeline_layers, Layers{2});
  EXPECT_EQ(parsed(with("mesh", "pipeline_layers = [2]"), {"mesh.pipeline_layers=auto"}).mesh.pipeline_layers,
            std::nullopt);
  for (const char* value : {"\"even\"", "[2.5]", "true", "2", "[\"2\"]"})
    expect_usage(refusal(with("mesh", "pipeline_layers = " + std::string(value))),
                 "'mesh.pipeline_layers' must be an array of integers or \"auto\", got ");
  expect_usage(refusal(with("mesh", "pipeline_layers = [-1]")), "'mesh.pipeline_layers' must be at least 0");
  // The order of the stages stays, and so do equal numbers.
  expect_usage(refusal(kSmallest, {"mesh.pipeline_layers=9,8,8"}),
               "mesh.pipeline_layers has 3 numbers, the number of stages is 1", "\"auto\"");
  EXPECT_EQ(parsed(with("mesh", "pipeline = 2")).mesh.pipeline, 2);
  const std::string two = "pipeline_stages_per_rank = 2\n";
  EXPECT_EQ(parsed(with("mesh", two + "pipeline = 2")).mesh.pipeline_stages_per_rank, 2);
  expect_usage(refusal(with("mesh", two)), "is of a pipeline, and mesh.pipeline is 1", "set mesh.pipeline");
  expect_usage(refusal(with("mesh", two + "pipeline = 2\npipeline_layers = [1, 1]")),
               "mesh.pipeline_layers has 2 numbers, the number of stages is 4");
}

TEST(ConfigValues, PathsMayBeginWithHome) {
  const std::string home = std::getenv("HOME");
  EXPECT_EQ(parsed(with("run", "directory = \"~/runs/a\"")).run.directory, home + "/runs/a");
  EXPECT_EQ(parsed(kSmallest, {"data.directory=~/d"}).data.directory, home + "/d");
  EXPECT_EQ(parsed(kSmallest, {"data.directory=./~/d"}).data.directory, "./~/d");
  EXPECT_EQ(parsed(with("run", "directory = \"${HOME}/a\"")).run.directory, home + "/a");
  for (const char* plain : {"$", "a$", "$/a", "${HOME", "${}", "a$-b"})
    EXPECT_EQ(parsed(kSmallest, {std::string("data.directory=") + plain}).data.directory, plain);
  EXPECT_EQ(parsed(kSmallest, {"data.directory=/s/${HOME}x$HOME"}).data.directory, "/s/" + home + "x" + home);
  const RunConfig literal = parsed(kSmallest, {"data.directory=/d/m$$HOME"});
  EXPECT_EQ(literal.data.directory, "/d/m$HOME");
  EXPECT_EQ(parsed(to_toml(literal)).data.directory, literal.data.directory) << "$ is written as $$";
  expect_usage(refusal(kSmallest, {"data.directory=/d/$NO_SUCH_VARIABLE"}),
               "'data.directory' has a variable that is not set", "export the variable");
  expect_usage(refusal(with("data", "directory = \"~no-user/d\"")),
               "'data.directory' has no known home directory: \"~no-user/d\"");
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
      {"optimizer", "epsilon = 1e-39"},  // 0 or denormal in float32
      {"train", "global_batch_sequences = 1048577"},
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
      {"run", "deadline_seconds = 4"},
      {"run", "deadline_seconds = \"never\""},
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
    const Error result = refusal(with(section, line));
    EXPECT_EQ(result.code(), ExitCode::kUsage) << line;
    EXPECT_HAS(result.what(), line.substr(0, line.find(' '))) << line;
    EXPECT_HAS(result.what(), "x.toml:") << line;
  }
  expect_usage(refusal(with("run", "seed = 18446744073709551616")), "64 bits");
}

// A value of a wrong type is not converted: the hint is the line to write.
TEST(ConfigValues, WordsFromElsewhereGetTheLineToWrite) {
  const auto hint = [](const std::string& section, const std::string& line) {
    const Error result = refusal(with(section, line));
    EXPECT_EQ(result.code(), ExitCode::kUsage) << line;
    return result.hint();
  };
  EXPECT_EQ(hint("precision", "compute = \"bf16\""), "write compute = \"bfloat16\"");
  EXPECT_EQ(hint("precision", "compute = \"BF16\""), "write compute = \"bfloat16\"");
  EXPECT_EQ(hint("precision", "compute = \"fp32\""), "write compute = \"float32\"");
  EXPECT_EQ(hint("precision", "reduce = \"float\""), "write reduce = \"float32\"");
  EXPECT_EQ(hint("precision", "compute = \"float16\""),
            "float16 is not in ripstop: bfloat16 has the same size and float32's range");
  EXPECT_EQ(hint("precision", "compute = \"bfloat61\""), "write compute = \"bfloat16\"");
  EXPECT_EQ(hint("run", "device = \"gpu\""), "write device = \"cuda\"");
  EXPECT_EQ(hint("schedule", "kind = \"linear_with_warmup\""), "write kind = \"linear\"");
  EXPECT_EQ(hint("checkpoint", "keep_best = \"eval_rougeL\""), "write keep_best = \"rougeL\"");
  EXPECT_EQ(hint("data", "pack = \"True\""), "write pack = true");
  EXPECT_EQ(hint("data", "pack = 0"), "write pack = false");
  EXPECT_EQ(hint("train", "steps = 1e3"), "write steps = 1000");
  EXPECT_EQ(hint("train", "global_batch_sequences = \"32\""), "write global_batch_sequences = 32");
  EXPECT_EQ(hint("optimizer", "learning_rate = \"2e-5\""), "write learning_rate = 2e-5");
  EXPECT_EQ(hint("mesh", "fsdp = \"Auto\""), "write fsdp = \"auto\"");
  EXPECT_EQ(hint("precision", "compute = \"int8\""), "");
  EXPECT_EQ(hint("train", "steps = \"0\""), "") << "0 is refused, too";
  EXPECT_EQ(hint("train", "steps = 1.5"), "it is a whole number of steps, no share");
  EXPECT_EQ(refusal(kSmallest, {"precision.compute=bf16"}).hint(), "write precision.compute=bfloat16");
  EXPECT_EQ(refusal(kSmallest, {"data.pack=True"}).hint(), "write data.pack=true");
}

TEST(ConfigValues, AllWrongValuesAreToldAtOnce) {
  std::string toml = with("precision", "compute = \"bf16\"");
  toml.replace(toml.find("steps = 100"), 11, "steps = \"many\"");
  const Error result = refusal(toml, {"run.seed=-1"});
  EXPECT_EQ(result.code(), ExitCode::kUsage);
  EXPECT_STREQ(result.what(),
               "x.toml:10: 'train.steps' must be an integer, got \"many\";\n"
               "x.toml:15: 'precision.compute' must be one of \"bfloat16\", \"float32\", got \"bf16\" "
               "(write compute = \"bfloat16\");\n"
               "command line: 'run.seed' must be at least 0 and at most 9.2e+18, got -1");
  EXPECT_HAS(result.hint(), "docs/config.md");
}

TEST(ConfigValues, RequiredKeysAreToldAtOnce) {
  const Error result = refusal("[model]\npreset = \"15m\"\n[run]\ndirectory = \"a\"\n");
  expect_usage(result, "'data.directory' is required (directory = a string under [data])");
  expect_usage(result, "'data.sequence_length' is required");
  expect_usage(result, "'optimizer.learning_rate' is required");
}

// If two sizes conflict, the hint says where each comes from: people often gave only one.
TEST(ConfigValues, SizesThatDisagreeSayWhereEachComesFrom) {
  std::string toml = with("model", "num_attention_heads = 4");
  toml.replace(toml.find("preset = \"15m\""), 14, "preset = \"llama2-7b\"");
  const Error result = refusal(toml);
  EXPECT_EQ(result.code(), ExitCode::kUsage);
  EXPECT_STREQ(result.what(),
               "x.toml:5: model.num_key_value_heads must be from 1 to num_attention_heads, got 32 and 4");
  EXPECT_EQ(result.hint(),
            "num_attention_heads = 4 is from x.toml:5, num_key_value_heads = 32 is the preset's (llama2-7b): "
            "give model.num_key_value_heads too");
  EXPECT_EQ(refusal(with("model", "hidden_size = 290")).hint(),
            "hidden_size = 290 is from x.toml:5, num_attention_heads = 6 is the preset's (15m): give "
            "model.num_attention_heads too");
  EXPECT_EQ(
      refusal(kSmallest, {"model.num_attention_heads=4", "model.num_key_value_heads=32"}).hint(),
      "num_attention_heads = 4 is from the command line, num_key_value_heads = 32 is from the command line");
  EXPECT_HAS(refusal(with("data", "sequence_length = 257")).hint(),
             "max_position_embeddings = 256 is the preset's (15m): shorten");
}

TEST(ConfigValues, TensorThatDoesNotDivideTheHeadsIsAResource) {
  expect_error(refusal(with("mesh", "tensor = 4")), ExitCode::kResources,
               "mesh.tensor 4 does not divide 6 query and 6 key-value heads", "1, 2, 3, 6");
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

// Early stopping needs validations and a metric.
TEST(ConfigValues, StopAfterValidationsNeedsThemAndAMetric) {
  const std::string key = "train.stop_after_validations=3";
  expect_usage(refusal(kSmallest, {key}), "command line: 'train.stop_after_validations' needs validations",
               "set train.validate_every");
  expect_usage(refusal(kSmallest, {key, "train.validate_every=5", "checkpoint.keep_best=none"}),
               "'train.stop_after_validations' needs a metric that can improve",
               "set checkpoint.keep_best to");
  EXPECT_EQ(parsed(kSmallest, {key, "train.validate_every=5"}).train.stop_after_validations, 3);
  EXPECT_EQ(refusal(kSmallest, {"train.stop_after_validations=-1", "train.validate_every=5"}).code(),
            ExitCode::kUsage);
}

TEST(ConfigValues, ASchedulesKeysFitItsKindAndTheSteps) {
  expect_usage(
      refusal(kSmallest, {"schedule.kind=wsd", "schedule.warmup_steps=91"}),
      "schedule.warmup_steps 91 and schedule.decay_ratio 0.1, which is 10 steps, exceed train.steps 100",
      "lower one of the two");
  expect_usage(refusal(kSmallest, {"schedule.decay_ratio=0.2"}),
               "'schedule.decay_ratio' is of schedule.kind = \"wsd\", and the kind is \"cosine\"",
               "set schedule.kind to \"wsd\"");
  expect_usage(refusal(kSmallest, {"schedule.kind=wsd", "schedule.decay_ratio=0"}),
               "'schedule.decay_ratio' must be above 0 and at most 1, got 0", "\"constant\" never falls");
  expect_usage(refusal(kSmallest, {"schedule.kind=warmup_stable_decay"}), "must be one of", "wsd");
  EXPECT_EQ(parsed(kSmallest, {"schedule.kind=wsd"}).schedule.decay_steps(100), 10);
}

}  // namespace
}  // namespace ripstop
