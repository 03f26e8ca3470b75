#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

using small_config::expect_usage;
using small_config::kSmallest;
using small_config::parsed;
using small_config::refusal;
using small_config::with;

TEST(ConfigSuggest, UnknownKeysNameLineAndNearest) {
  expect_usage(refusal(with("optimizer", "lerning_rate = 1")),
               "x.toml:13: unknown key 'optimizer.lerning_rate'", "did you mean 'optimizer.learning_rate'?");
  expect_usage(refusal(with("schedule", "lr_warmpup = 1")), "unknown key 'schedule.lr_warmpup'", "schedule");
  expect_usage(refusal(with("train", "learning_rate = 1")), "'train.learning_rate'",
               "'optimizer.learning_rate'");
  expect_usage(refusal(with("trian", "steps = 1")), "x.toml:14: unknown section [trian]", "[train]");
  expect_usage(refusal(with("training", "steps = 1")), "unknown section [training]", "[train]");
  expect_usage(refusal("lr = 1\n" + std::string(kSmallest)), "x.toml:1: unknown key 'lr'",
               "'optimizer.learning_rate'");
  expect_usage(refusal("train = 1\n"), "'train' is a section");
  expect_usage(refusal("[[train]]\nsteps = 1\n"), "'train' is a section");
  expect_usage(refusal(with("train", "zzzzzzzz = 1")), "'train.zzzzzzzz'", "[train] has steps, epochs");
}

TEST(ConfigSuggest, AllUnknownKeysAreToldAtOnceInTheOrderOfTheFile) {
  std::string toml = with("optimizer", "lerning_rate = 1");
  toml.insert(toml.find("steps = 100"), "stesp = 5\n");
  const Error result = refusal(toml + "[trian]\nx = 1\n", {"run.sed=1", "frobnicate=1"});
  EXPECT_EQ(result.code(), ExitCode::kUsage);
  EXPECT_EQ(std::string(result.what())
                .rfind("x.toml:10: unknown key 'train.stesp' (did you mean 'train.steps'?);\n"
                       "x.toml:14: unknown key 'optimizer.lerning_rate' (did you mean "
                       "'optimizer.learning_rate'?);\n"
                       "x.toml:16: unknown section [trian] (did you mean [train]?);\n"
                       "command line: unknown key 'run.sed' (did you mean 'run.seed'?);\n"
                       "command line: unknown key 'frobnicate' (",
                       0),
            0u)
      << result.what();
  EXPECT_HAS(result.hint(), "docs/config.md");
  // Another program's file gives no page of errors.
  std::string many = kSmallest;
  for (int i = 0; i < 20; ++i) many += "zzz" + std::to_string(i) + " = 1\n";
  EXPECT_HAS(refusal(many).what(), ";\nand 12 more");
}

TEST(ConfigSuggest, WhoAsksForWandbIsToldWhatThereIs) {
  for (const char* word : {"report_to=wandb", "train.report_to=tensorboard", "log.wandb=true",
                           "metrics.enable_tensorboard=true", "train.logging_dir=logs"})
    EXPECT_HAS(refusal(kSmallest, {word}).hint(), "'log.tensorboard'") << word;
  EXPECT_HAS(refusal(with("wandb", "project = \"x\"")).hint(), "writes what TensorBoard and wandb sync read");
}

// No far-fetched guesses: for other programs' keys without a counterpart the hint says so.
TEST(ConfigSuggest, FarOffNamesGetNoGuess) {
  const auto hint = [](const std::string& override) { return refusal(kSmallest, {override}).hint(); };
  EXPECT_EQ(hint("train.compile=true"), "not in ripstop: its kernels are compiled with it");
  EXPECT_HAS(hint("optimizer.name=AdamW"), "the optimizer is AdamW");
  EXPECT_EQ(hint("model.name=llama2"), "did you mean 'model.preset'?");
  EXPECT_EQ(hint("precision.comptue=float32"), "did you mean 'precision.compute'?");
  EXPECT_EQ(hint("precision.commute_in=float32").find("did you mean"), std::string::npos);
}

TEST(ConfigSuggest, NoHintRepeatsWhatWasRefused) {
  const auto told = [&](const std::string& override) {
    const Error result = refusal(kSmallest, {override});
    return std::string(result.what()) + " | " + result.hint();
  };
  EXPECT_EQ(told("optimizer.learning_rate=.001"),
            "command line: 'optimizer.learning_rate' must be a number, got \".001\" | write "
            "optimizer.learning_rate=0.001");
  EXPECT_HAS(told("optimizer.learning_rate=1."), "| write optimizer.learning_rate=1.0");
  EXPECT_HAS(told("train.steps=010"), "| write train.steps=10");
  EXPECT_HAS(told("schedule.warmup_steps=0.03"),
             "must be an integer, got 0.03 | it is a whole number of steps");
  EXPECT_HAS(told("optimizer.betas=[0.9,0.95,0.1]"), "got [0.9, 0.95, 0.1] | ");
  EXPECT_HAS(told("train.max_grad_norm=none"), "| write train.max_grad_norm=0 (0: off)");
  EXPECT_HAS(told("train.max_grad_norm=false"), "| write train.max_grad_norm=0 (0: off)");
  EXPECT_HAS(told("train.max_grad_norm=-1"), "| train.max_grad_norm = 0.0 is off");
  EXPECT_HAS(told("checkpoint.keep=None"), "| write checkpoint.keep=0 (0: all)");
  EXPECT_HAS(told("precision.compute=\u201cfloat32\u201d"), "| write precision.compute=float32");
  for (const char* fits : {"optimizer.betas=0.9,0.95", "optimizer.betas=[0.9, 0.95]", "train.max_grad_norm=0",
                           "optimizer.learning_rate=0.001"})
    EXPECT_EQ(told(fits), " | ") << fits;
  EXPECT_EQ(parsed(kSmallest, {"optimizer.betas=0.8,0.85"}).optimizer.betas, (std::array{0.8, 0.85}));
}

// Web pages make quotes round and dashes long, which look right.
TEST(ConfigSuggest, AnOddCharacterIsShown) {
  const Error round = refusal(with("precision", "compute = \u201cfloat32\u201d"));
  EXPECT_HAS(round.hint(), "the line is: compute = \u201cfloat32\u201d (with U+201C: ");
  EXPECT_HAS(refusal(with("optimizer", "learning_rate = 1e\u22123")).hint(), "U+2212");
  const Error utf16 = refusal(std::string("\xff\xfe[\0", 4));
  EXPECT_HAS(utf16.what(), "x.toml: UTF-16, expected UTF-8");
  EXPECT_HAS(utf16.hint(), "iconv -f UTF-16 -t UTF-8 x.toml > ");
}

TEST(ConfigSuggest, NamesFromElsewhereAreUnderstood) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train.gradient_checkpointing", "'train.recompute'"},
      {"train.per_device_train_batch_size", "'train.micro_batch_sequences'"},
      {"mesh.dp_shard", "'mesh.fsdp'"},
      {"mesh.data_parallel_shard_degree", "'mesh.fsdp'"},
      {"mesh.tensor_parallel_degree", "'mesh.tensor'"},
      {"mesh.pp", "'mesh.pipeline'"},
      {"mesh.pipeline_parallel_size", "'mesh.pipeline'"},
      {"parallelism.pipeline_parallel_degree", "'mesh.pipeline'"},
      {"parallelism.context_parallel_degree", "no such axis"},
      {"parallelism.tensor_parallel_degree", "'mesh.tensor'"},
      {"optimizer.lr", "'optimizer.learning_rate'"},
      {"train.num_train_epochs", "'train.epochs'"},
      {"train.gradient_accumulation_steps", "'train.global_batch_sequences'"},
      {"data.seq_len", "'data.sequence_length'"},
      {"train.max_steps", "'train.steps'"},
      {"schedule.warmup_ratio", "'schedule.warmup_steps'"},
      {"train.eval_steps", "'train.validate_every'"},
      {"train.eval_on_start", "'train.validate_at_start'"},
      {"train.early_stopping_patience", "'train.stop_after_validations'"},
      {"checkpoint.save_total_limit", "'checkpoint.keep'"},
      {"model.n_layers", "'model.num_hidden_layers'"},
      {"precision.bf16", "'precision.compute'"},
  };
  for (const auto& [name, expected] : cases) {
    const Error result = refusal(kSmallest, {name + "=1"});
    EXPECT_HAS(result.hint(), expected) << name;
  }
}

}  // namespace
}  // namespace ripstop
