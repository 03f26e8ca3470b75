#include "train/config/run_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "model/core/error.h"
#include "train/config/config_keys.h"
#include "train/config/unsupported_keys.h"

namespace ripstop {
namespace {

const char* const kSmallest = R"(
[run]
directory = "runs/a"
[model]
preset = "15m"
[data]
directory = "data/a"
sequence_length = 256
[train]
steps = 100
global_batch_sequences = 8
[optimizer]
learning_rate = 1e-3
)";

RunConfig parsed(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(toml, "x.toml", overrides);
}

struct Refusal {
  ExitCode code = ExitCode::kOk;
  std::string what;
  std::string hint;
};

Refusal refusal(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  try {
    parsed(toml, overrides);
  } catch (const Error& error) {
    return {error.code(), error.what(), error.hint()};
  }
  return {};
}

// The smallest config with one line replaced, or added to its section if no line has its key.
std::string with(const std::string& section, const std::string& line) {
  std::string toml = kSmallest;
  const std::string name = line.substr(0, line.find_first_of(" ="));
  const size_t begin = toml.find("[" + section + "]");
  if (begin == std::string::npos) return toml + "[" + section + "]\n" + line + "\n";
  const size_t end = std::min(toml.find("\n[", begin), toml.size());
  const size_t old = toml.find("\n" + name + " =", begin);
  if (old != std::string::npos && old < end) {
    toml.replace(old + 1, toml.find('\n', old + 1) - old - 1, line);
  } else {
    toml.insert(begin + section.size() + 3, line + "\n");
  }
  return toml;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

void expect_usage(const Refusal& refusal, const std::string& what, const std::string& hint = "") {
  EXPECT_EQ(refusal.code, ExitCode::kUsage) << refusal.what;
  EXPECT_HAS(refusal.what, what);
  EXPECT_HAS(refusal.hint, hint);
}

TEST(RunConfig, SmallestConfigTakesDefaultsAndPreset) {
  const RunConfig config = parsed(kSmallest);
  EXPECT_EQ(config.run.directory, "runs/a");
  EXPECT_EQ(config.model.hidden_size, 288);
  EXPECT_EQ(config.model.vocab_size, 32000);
  EXPECT_TRUE(config.model.tie_word_embeddings);
  EXPECT_EQ(config.train.steps, 100);
  EXPECT_FALSE(config.train.epochs.has_value());
  EXPECT_FALSE(config.train.micro_batch_sequences.has_value());
  EXPECT_FALSE(config.mesh.fsdp.has_value());
  EXPECT_EQ(config.mesh.replicate, 1);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(config.precision.compute, FloatChoice::kBfloat16);
  EXPECT_EQ(config.data.shuffle_seed, config.run.seed);
}

TEST(RunConfig, EveryKeyIsReadFromTheFile) {
  const RunConfig config = parsed(R"(
    [run]
    directory = "runs/b"
    seed = 7
    device = "cpu"
    deterministic = true
    profile_steps = "10-12"
    [model]
    hidden_size = 64
    intermediate_size = 192
    num_hidden_layers = 3
    num_attention_heads = 8
    num_key_value_heads = 4
    vocab_size = 96
    max_position_embeddings = 128
    rms_norm_eps = 1e-6
    rope_theta = 50000
    tie_word_embeddings = true
    initializer_range = 0.02
    [mesh]
    replicate = 2
    fsdp = 3
    tensor = 4
    allow_tensor_across_nodes = true
    overlap_tensor = true
    [data]
    directory = "data/b"
    sequence_length = 128
    pack = false
    loss_on = "all"
    shuffle_seed = 9
    [train]
    epochs = 3
    global_batch_sequences = 16
    micro_batch_sequences = 2
    recompute = "selective"
    reshard_after_forward = false
    validate_every = 50
    max_grad_norm = 0
    [optimizer]
    learning_rate = 2e-5
    betas = [0.8, 0.99]
    epsilon = 1e-6
    weight_decay = 0
    decay_norms = true
    [schedule]
    kind = "linear"
    warmup_steps = 10
    minimum_ratio = 0.1
    [precision]
    compute = "float32"
    reduce = "bfloat16"
    [checkpoint]
    every_steps = 20
    keep = 5
    keep_best = "rougeL"
    asynchronous = true
    [generation]
    num_beams = 4
    length_penalty = 0.6
    no_repeat_ngram_size = 3
    max_new_tokens = 32
    validate_examples = 100
    [log]
    every_steps = 1
    tensorboard = true
  )");
  RunConfig expected;
  expected.run = {"runs/b", 7, DeviceChoice::kCpu, true, "10-12"};
  static_cast<ModelConfig&>(expected.model) = {64, 192, 3, 8, 4, 96, 128, 1e-6, 50000, true, 0.02};
  expected.mesh = {2, 3, 4, true, true};
  expected.data = {"data/b", 128, false, LossOn::kAll, 9};
  expected.train = {std::nullopt, 3, 16, 2, Recompute::kSelective, false, 50, 0};
  expected.optimizer = {2e-5, {0.8, 0.99}, 1e-6, 0, true};
  expected.schedule = {ScheduleKind::kLinear, 10, 0.1};
  expected.precision = {FloatChoice::kFloat32, FloatChoice::kBfloat16};
  expected.checkpoint = {20, 5, KeepBest::kRougeL, true};
  expected.generation = {4, 0.6, 3, 32, 100};
  expected.log = {1, true};
  EXPECT_EQ(config, expected);
  EXPECT_EQ(parsed(to_toml(config)), config);
  // All keys but those that exclude the ones given.
  std::set<std::string> missing;
  for (const ConfigKey& key : config_keys())
    if (to_toml(config).find("\n" + std::string(key.name) + " = ") == std::string::npos)
      missing.insert(key.path());
  EXPECT_EQ(missing, (std::set<std::string>{"model.pretrained", "model.preset", "train.steps"}));
}

TEST(RunConfig, WrittenTomlReadsBackEqual) {
  EXPECT_EQ(parsed(to_toml(parsed(kSmallest))), parsed(kSmallest));
  const RunConfig debug = parsed(with("model", "preset = \"debug\""));
  EXPECT_EQ(debug.model.vocab_size, 0);
  EXPECT_EQ(parsed(to_toml(debug)), debug);
  RunConfig odd = parsed(
      kSmallest, {"run.directory=a \"b\" \\ ü", "optimizer.learning_rate=0.1", "train.max_grad_norm=3"});
  EXPECT_EQ(odd.run.directory, "a \"b\" \\ ü");
  EXPECT_EQ(parsed(to_toml(odd)), odd);
}

TEST(RunConfig, PretrainedTakesNoSizes) {
  const std::string toml = with("model", "preset = \"15m\"");
  std::string pretrained = toml;
  pretrained.replace(pretrained.find("preset = \"15m\""), 14, "pretrained = \"llama\"");
  const RunConfig config = parsed(pretrained);
  EXPECT_EQ(config.model.pretrained, "llama");
  EXPECT_EQ(parsed(to_toml(config)), config);
  expect_usage(refusal(pretrained + "[mesh]\n", {"model.hidden_size=64"}), "beside 'model.pretrained'",
               "config.json");
  expect_usage(refusal(with("model", "pretrained = \"x\"")), "x.toml:6: 'model.preset' cannot stand beside");
}

TEST(RunConfig, OverridesComeLastAndNeedNoQuotes) {
  const RunConfig config =
      parsed(kSmallest, {"train.steps=7", "run.device=cpu", "mesh.fsdp=auto", "mesh.tensor=2",
                         "optimizer.betas=[0.5, 0.6]", "data.pack=false", "--log.every_steps=3",
                         "run.directory=runs/x=1"});
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.run.device, DeviceChoice::kCpu);
  EXPECT_EQ(config.mesh.tensor, 2);
  EXPECT_EQ(config.optimizer.betas[1], 0.6);
  EXPECT_FALSE(config.data.pack);
  EXPECT_EQ(config.log.every_steps, 3);
  EXPECT_EQ(config.run.directory, "runs/x=1");
  EXPECT_EQ(parsed(kSmallest, {"train.steps=7", "run.seed=2", "train.steps=8"}).train.steps, 8);
  // If two keys exclude each other, that of the command line wins.
  const RunConfig by_epochs = parsed(kSmallest, {"train.epochs=2"});
  EXPECT_FALSE(by_epochs.train.steps.has_value());
  EXPECT_EQ(by_epochs.train.epochs, 2);
  EXPECT_EQ(parsed(kSmallest, {"model.pretrained=llama"}).model.preset, "");
}

TEST(RunConfig, BadOverridesAreNamed) {
  expect_usage(refusal(kSmallest, {"train.stpes=7"}), "command line: unknown key 'train.stpes'",
               "'train.steps'");
  expect_usage(refusal(kSmallest, {"train.steps"}), "'train.steps' is not section.key=value");
  expect_usage(refusal(kSmallest, {"steps=7"}), "unknown key 'steps'", "'train.steps'");
  expect_usage(refusal(kSmallest, {"train.steps=abc"}), "'train.steps' must be an integer, got \"abc\"");
  expect_usage(refusal(kSmallest, {"train.steps="}), "'train.steps' must be an integer");
  expect_usage(refusal(kSmallest, {"train.steps=7\nrun.seed=1"}), "'train.steps' must be an integer");
  expect_usage(refusal(kSmallest, {"train.steps=7", "train.epochs=8"}), "both given");
  expect_usage(refusal(kSmallest, {"run.directory=\"\""}), "'run.directory' must not be empty");
}

TEST(RunConfig, UnknownKeysNameLineAndNearest) {
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

// A far-fetched guess misleads. If other programs have a key and ripstop has none, the hint says so.
TEST(RunConfig, FarOffNamesGetNoGuess) {
  const auto hint = [](const std::string& override) { return refusal(kSmallest, {override}).hint; };
  EXPECT_EQ(hint("train.compile=true"), "not in ripstop: its kernels are compiled with it");
  EXPECT_EQ(hint("optimizer.name=AdamW"), "the optimizer is AdamW");
  EXPECT_EQ(hint("model.name=llama2"), "did you mean 'model.preset'?");
  EXPECT_EQ(hint("precision.comptue=float32"), "did you mean 'precision.compute'?");
  EXPECT_EQ(hint("precision.commute_in=float32").find("did you mean"), std::string::npos);
}

TEST(RunConfig, NamesFromElsewhereAreUnderstood) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train.gradient_checkpointing", "'train.recompute'"},
      {"train.per_device_train_batch_size", "'train.micro_batch_sequences'"},
      {"mesh.dp_shard", "'mesh.fsdp'"},
      {"mesh.data_parallel_shard_degree", "'mesh.fsdp'"},
      {"mesh.tensor_parallel_degree", "'mesh.tensor'"},
      {"parallelism.tensor_parallel_degree", "'mesh.tensor'"},
      {"optimizer.lr", "'optimizer.learning_rate'"},
      {"train.num_train_epochs", "'train.epochs'"},
      {"train.gradient_accumulation_steps", "'train.global_batch_sequences'"},
      {"data.seq_len", "'data.sequence_length'"},
      {"train.max_steps", "'train.steps'"},
      {"schedule.warmup_ratio", "'schedule.warmup_steps'"},
      {"train.eval_steps", "'train.validate_every'"},
      {"checkpoint.save_total_limit", "'checkpoint.keep'"},
      {"model.n_layers", "'model.num_hidden_layers'"},
      {"precision.bf16", "'precision.compute'"},
  };
  for (const auto& [name, expected] : cases) {
    const Refusal result = refusal(kSmallest, {name + "=1"});
    EXPECT_HAS(result.hint, expected) << name;
  }
}

TEST(RunConfig, WrongTypesAreNamed) {
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

TEST(RunConfig, ImpossibleValuesAreNamed) {
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

TEST(RunConfig, TensorThatDoesNotDivideTheHeadsIsAResource) {
  const Refusal result = refusal(with("mesh", "tensor = 4"));
  EXPECT_EQ(result.code, ExitCode::kResources);
  EXPECT_HAS(result.what, "mesh.tensor 4 does not divide 6 query and 6 key-value heads");
  EXPECT_HAS(result.hint, "1, 2, 3, 6");
}

TEST(RunConfig, RequiredKeysAreNamed) {
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

TEST(RunConfig, SyntaxErrorsNameLineAndColumn) {
  expect_usage(refusal("[run]\nseed = = 5\n"), "x.toml:2:8: ");
  expect_usage(refusal("[run\n"), "x.toml:1:");
  expect_usage(refusal("[run]\nseed = 1\n# text\nseed = 2\n"),
               "x.toml:4: 'seed' is given twice (lines 2 and 4)");
  expect_usage(refusal("[run]\nseed = 1\n[run]\ndevice = 'cpu'\n"), "x.toml:3: 'run' is given twice");
  expect_usage(refusal("[run]\ndirectory = \"\xff\xfe\"\n"), "utf-8");
  EXPECT_EQ(parsed("\xef\xbb\xbf" + std::string(kSmallest)).train.steps, 100);
}

TEST(RunConfig, HostileFilesAreRefusedQuickly) {
  expect_usage(refusal("x = " + std::string(4000, '[')), "x.toml:1");
  expect_usage(refusal("[a" + std::string(3000, '.') + "]"), "x.toml:1");
  std::string dotted = "[a";
  for (int i = 0; i < 2000; ++i) dotted += ".b";
  expect_usage(refusal(dotted + "]\n"), "unknown section");
  expect_usage(refusal(std::string(5000, 'a') + " = 1\n"), "line of 5004 bytes");
  expect_usage(refusal(std::string(2 << 20, '\n')), "larger than");
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "k" + std::to_string(i) + " = 1\n";
  expect_usage(refusal(many), "unknown key 'k0'");
}

// Any bytes are accepted, or refused as a usage or mesh error. Nothing else may happen.
TEST(RunConfig, DamagedFilesAreRefusedCleanly) {
  std::ifstream file(std::filesystem::path(RIPSTOP_SOURCE_DIR) / "configs/quickstart.toml");
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        default:
          text.insert(at, 1, "[]{}=.\"'#\n-+e_0"[random() % 15]);
      }
    }
    try {
      parsed(text);
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.code() == ExitCode::kUsage || error.code() == ExitCode::kResources) << error.what();
      EXPECT_EQ(std::string(error.what()).rfind("x.toml", 0), 0u) << error.what();
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(RunConfig, FilesThatCannotBeRead) {
  const auto load = [](const std::string& path) -> std::string {
    try {
      load_run_config(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  };
  EXPECT_HAS(load(""), "config file is required");
  EXPECT_HAS(load("/no/such/file.toml"), "/no/such/file.toml: cannot open: No such file");
  EXPECT_HAS(load("/tmp"), "is a directory");
}

TEST(RunConfig, ShippedConfigsAreValid) {
  int64_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(RIPSTOP_SOURCE_DIR) / "configs")) {
    const RunConfig config = load_run_config(entry.path().string());
    EXPECT_EQ(parsed(to_toml(config)), config) << entry.path();
    // A config for pretrained weights says in its first line that this version does not read them.
    std::ifstream file(entry.path());
    std::string first_line;
    std::getline(file, first_line);
    const bool says_so = first_line.find("cannot read model.pretrained yet") != std::string::npos;
    EXPECT_EQ(says_so, !config.model.pretrained.empty()) << entry.path();
    EXPECT_EQ(unsupported_key_notes(config).size(), says_so ? 1u : 0u) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 4);
}

TEST(RunConfig, ResumeAcceptsTheMeshAndRefusesTheModel) {
  const RunConfig before = parsed(kSmallest);
  EXPECT_TRUE(check_resume(before, before).empty());
  const RunConfig moved = parsed(
      kSmallest, {"mesh.tensor=2", "log.every_steps=1", "checkpoint.keep=9", "train.micro_batch_sequences=2",
                  "train.recompute=full", "train.steps=200", "data.directory=elsewhere"});
  const std::vector<ConfigDifference> accepted = check_resume(before, moved);
  EXPECT_EQ(accepted.size(), 7u);
  EXPECT_EQ(accepted[0].text(), "mesh.tensor: 1 -> 2");

  const auto refused = [&](const std::string& change) -> std::string {
    try {
      check_resume(before, parsed(kSmallest, {change}));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  };
  EXPECT_HAS(refused("train.steps=50"), "train.steps: 100 -> 50");
  EXPECT_HAS(refused("train.epochs=5"), "train.steps: 100 -> (none)");
  EXPECT_HAS(refused("optimizer.learning_rate=1e-4"), "optimizer.learning_rate: 0.001 -> 0.0001");
  EXPECT_HAS(refused("model.num_hidden_layers=7"), "model.num_hidden_layers: 6 -> 7");
  EXPECT_HAS(refused("train.global_batch_sequences=16"), "train.global_batch_sequences: 8 -> 16");
  EXPECT_HAS(refused("data.sequence_length=128"), "data.sequence_length: 256 -> 128");
  EXPECT_HAS(refused("run.seed=2"), "run.seed: 1 -> 2, data.shuffle_seed: 1 -> 2");
}

// Keys that this version does not do, one line of a config each.
const std::vector<std::pair<std::string, std::string>> kUnsupported = {
    {"train.recompute", "full"},          {"train.recompute", "selective"},
    {"checkpoint.asynchronous", "true"},  {"generation.num_beams", "4"},
    {"generation.length_penalty", "0.6"}, {"generation.no_repeat_ngram_size", "3"},
    {"log.tensorboard", "true"}};

Refusal refused_by(ConfigReader reader, const RunConfig& config) {
  try {
    refuse_unsupported_keys(config, reader, [](const ConfigKey& key) { return "at " + key.path(); });
  } catch (const Error& error) {
    return {error.code(), error.what(), error.hint()};
  }
  return {};
}

TEST(RunConfig, KeysThatThisVersionDoesNotDoAreRefusedByWhoReadsThem) {
  for (const auto& [key, value] : kUnsupported) {
    const RunConfig config = parsed(kSmallest, {key + "=" + value});
    expect_usage(refused_by(ConfigReader::kTrain, config), "at " + key + ": " + key + " = ", key + " = ");
    EXPECT_EQ(refused_by(ConfigReader::kPlan, config).code, ExitCode::kOk) << key;
    const bool generates = key.rfind("generation.", 0) == 0;
    EXPECT_EQ(refused_by(ConfigReader::kGenerate, config).code, generates ? ExitCode::kUsage : ExitCode::kOk)
        << key;
    ASSERT_EQ(unsupported_key_notes(config).size(), 1u) << key;
    EXPECT_HAS(unsupported_key_notes(config)[0], key + " = ");
  }
  for (const ConfigReader reader : {ConfigReader::kTrain, ConfigReader::kPlan, ConfigReader::kGenerate})
    EXPECT_EQ(refused_by(reader, parsed(kSmallest)).code, ExitCode::kOk);
  const RunConfig pretrained = parsed(kSmallest, {"model.pretrained=llama"});
  expect_usage(refused_by(ConfigReader::kTrain, pretrained), "model.pretrained = \"llama\"", "model.preset");
  expect_usage(refused_by(ConfigReader::kPlan, pretrained), "model.pretrained = \"llama\"", "model.preset");
}

TEST(RunConfig, KeysThatThisVersionDoesNotDoAreListedAtOnce) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : kUnsupported) overrides.push_back(key + "=" + value);
  const RunConfig config = parsed(kSmallest, overrides);
  const Refusal refusal = refused_by(ConfigReader::kTrain, config);
  for (const auto& [key, value] : kUnsupported) expect_usage(refusal, "at " + key, key + " = ");
  EXPECT_EQ(unsupported_key_notes(config).size(), 6u);
}

// A run of an older version stored such values, which had no effect. It must be able to go on.
TEST(RunConfig, ResumeMayMendWhatHadNoEffect) {
  for (const auto& [key, value] : kUnsupported) {
    const RunConfig before = parsed(kSmallest, {key + "=" + value});
    EXPECT_EQ(check_resume(before, parsed(kSmallest)).size(), 1u) << key;
  }
  EXPECT_THROW(check_resume(parsed(kSmallest), parsed(kSmallest, {"generation.num_beams=4"})), Error);
}

TEST(RunConfig, EveryChangeIsADifference) {
  // If compare() overlooked a key, a resumed run could go on with another meaning of its config.
  const RunConfig before = parsed(kSmallest);
  for (const ConfigKey& key : config_keys()) {
    RunConfig after = before;
    std::visit(
        [](auto field) {
          if constexpr (std::is_same_v<decltype(field), ChoiceField>)
            field.set(field.value, field.get(field.value) == 0 ? 1 : 0);
          else if constexpr (std::is_same_v<decltype(field), bool*>)
            *field = !*field;
          else if constexpr (std::is_same_v<decltype(field), std::string*>)
            *field += "x";
          else if constexpr (std::is_same_v<decltype(field), std::array<double, 2>*>)
            (*field)[1] += 0.01;
          else if constexpr (std::is_same_v<decltype(field), std::optional<int64_t>*>)
            *field = field->value_or(0) + 1;
          else if constexpr (std::is_same_v<decltype(field), std::optional<bool>*>)
            *field = !field->value_or(false);
          else
            *field += 1;
        },
        key.field(after));
    if (key.name == "pretrained") continue;  // removes the sizes too
    const std::vector<ConfigDifference> differences = compare(before, after);
    ASSERT_EQ(differences.size(), 1u) << key.path();
    EXPECT_EQ(differences[0].key, key.path());
    EXPECT_FALSE(before == after);
  }
}

// docs/config.md holds what `ripstop config-table` prints.
TEST(RunConfig, DocsHaveTheTable) {
  std::ifstream file(std::filesystem::path(RIPSTOP_SOURCE_DIR) / "docs/config.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const size_t from = page.find("| key |"), to = page.find("<!-- /config-table -->");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(page.substr(from, to - from), config_table_markdown());
}

TEST(RunConfig, TableOfKeysIsWhole) {
  const std::string table = config_table_markdown();
  std::set<std::string> seen;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(seen.insert(key.path()).second) << "twice: " << key.path();
    EXPECT_HAS(table, "| `" + key.path() + "` |");
    EXPECT_FALSE(key.doc.empty()) << key.path();
    RunConfig any;
    const Field field = key.field(any);
    if (const auto* choice = std::get_if<ChoiceField>(&field)) {
      const size_t row = table.find("| `" + key.path() + "` |");
      const std::string line = table.substr(row, table.find('\n', row) - row);
      for (const std::string_view word : choice->words) EXPECT_HAS(line, "`\"" + std::string(word) + "\"`");
    }
    EXPECT_EQ(std::string(key.doc).find('|'), std::string::npos) << key.path();
    EXPECT_EQ(find_config_key(key.section, key.name), &key);
  }
  EXPECT_EQ(seen.size(), 57u);
}

}  // namespace
}  // namespace ripstop
