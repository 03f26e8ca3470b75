#include "train/config/run_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/data/scratch_directory.h"
#include "tests/train/config/small_config.h"
#include "train/config/config_keys.h"
#include "train/config/nearest_name.h"

namespace ripstop {
namespace {

using small_config::expect_usage;
using small_config::kSmallest;
using small_config::parsed;
using small_config::refusal;
using small_config::with;

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
    deadline_seconds = 90
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
    head_dim = 16
    attention_bias = "qkvo"
    qk_norm = true
    sliding_window = 128
    rope_type = "llama3"
    rope_factor = 8
    rope_low_freq_factor = 2
    rope_high_freq_factor = 3
    rope_original_max_position_embeddings = 64
    [mesh]
    replicate = 2
    fsdp = 3
    pipeline = 2
    tensor = 4
    pipeline_stages_per_rank = 2
    allow_tensor_across_nodes = true
    overlap_tensor = true
    [data]
    directory = "data/b"
    sequence_length = 128
    pack = false
    loss_on = "all"
    shuffle = false
    shuffle_seed = 9
    [train]
    epochs = 3
    global_batch_sequences = 16
    micro_batch_sequences = 2
    recompute = "selective"
    reshard_after_forward = false
    validate_at_start = true
    validate_every = 50
    stop_after_validations = 4
    max_grad_norm = 0
    [optimizer]
    learning_rate = 2e-5
    betas = [0.8, 0.99]
    epsilon = 1e-6
    weight_decay = 0
    decay_norms = true
    moments = "bfloat16"
    [schedule]
    kind = "wsd"
    warmup_steps = 10
    minimum_ratio = 0.1
    decay_ratio = 0.25
    decay = "1-sqrt"
    [precision]
    compute = "float32"
    reduce = "bfloat16"
    [checkpoint]
    every_steps = 20
    keep = 5
    keep_best = "rougeL"
    asynchronous = false
    snapshot_mib = 4096
    [generation]
    num_beams = 4
    length_penalty = 0.6
    early_stopping = true
    no_repeat_ngram_size = 3
    min_new_tokens = 5
    max_new_tokens = 32
    do_sample = false
    temperature = 0.7
    top_k = 50
    top_p = 0.9
    seed = 11
    validate_examples = 100
    [log]
    every_steps = 1
    tensorboard = false
  )");
  RunConfig expected;
  expected.run = {"runs/b", 7, DeviceChoice::kCpu, true, "10-12", 90, ""};
  static_cast<ModelConfig&>(expected.model) = {64,
                                               192,
                                               3,
                                               8,
                                               4,
                                               96,
                                               128,
                                               1e-6,
                                               50000,
                                               true,
                                               0.02,
                                               16,
                                               AttentionBias::kQkvo,
                                               true,
                                               128,
                                               RopeType::kLlama3,
                                               8,
                                               2,
                                               3,
                                               64};
  expected.mesh = {{2, 3, 4, 2}, 2, std::nullopt, true, true};
  expected.data = {"data/b", {}, {}, 128, false, LossOn::kAll, false, 9};
  expected.train = {std::nullopt, 3, 16, 2, RecomputeChoice::kSelective, false, true, 50, 4, 0};
  expected.optimizer = {2e-5, {0.8, 0.99}, 1e-6, 0, true, FloatChoice::kBfloat16};
  expected.schedule = {ScheduleKind::kWsd, 10, 0.1, 0.25, ScheduleDecay::kOneMinusSqrt};
  expected.precision = {FloatChoice::kFloat32, FloatChoice::kBfloat16};
  expected.checkpoint = {20, 5, KeepBest::kRougeL, false, 4096};
  expected.generation = {{4, 0.6, EarlyStopping::kTrue, 3, 5, 32, false, 0.7, 50, 0.9, 11}, 100};
  expected.log = {1, false};
  EXPECT_EQ(config, expected) << to_toml(config);
  EXPECT_EQ(parsed(to_toml(config)), config) << to_toml(config);
  std::string missing;  // keys that conflict with a given one
  for (const ConfigKey& key : config_keys())
    if (to_toml(config).find("\n" + std::string(key.name) + " = ") == std::string::npos)
      missing += key.path() + " ";
  EXPECT_EQ(
      missing,
      "run.continue_from model.pretrained model.preset lora.alpha lora.dropout lora.targets lora.rslora "
      "lora.adapter data.directories data.weights train.steps ");
}

TEST(RunConfig, HeadsAnglesAndWindowsOfTheModel) {
  EXPECT_EQ(parsed(kSmallest).model.head_dim, parsed(kSmallest).model.head_size())
      << "the default, as a number";
  const std::vector<std::string> llama3 = {"model.rope_type=llama3", "model.rope_factor=8"};
  EXPECT_EQ(parse_run_config(kSmallest, "x.toml", llama3).model.rope_original_max_position_embeddings, 8192);
  const auto refusal = [](const std::string& override) {
    return what_and_hint_of([&] { parsed(kSmallest, {override}); }, ExitCode::kUsage);
  };
  EXPECT_HAS(refusal("model.sliding_window=8"), "lengths that work: 1 to 8");
  EXPECT_HAS(refusal("model.rope_type=yarn"),
             "ripstop scales rotary frequencies as \"linear\" or \"llama3\"");
  EXPECT_HAS(refusal("model.rope_factor=8"), "needs rope_type linear or llama3");
  EXPECT_HAS(refusal("model.head_dim=7"), "model.head_dim must be even");
  EXPECT_HAS(refusal("model.mlp_bias=true"), "feed-forward layers add no biases");
  EXPECT_HAS(refusal("model.rope_scaling=1"), "'model.rope_type'");
  // With another rope_type the preset's constants do not count.
  const std::string preset = with("model", "preset = \"llama3.2-1b\"");
  const auto model_of = [&](const std::vector<std::string>& overrides) {
    const RunConfig config = parse_run_config(preset, "x.toml", overrides);
    EXPECT_EQ(parsed(to_toml(config)), config);
    return config.model;
  };
  EXPECT_EQ(model_of({}).rope_factor, 32);
  EXPECT_EQ(model_of({"model.rope_type=llama3"}).rope_factor, 32);
  EXPECT_EQ(model_of({"model.rope_type=default"}).rope_factor, 1);
  const ModelConfig linear = model_of({"model.rope_type=linear", "model.rope_factor=2"});
  EXPECT_EQ(linear.rope_factor, 2);
  EXPECT_EQ(linear.rope_original_max_position_embeddings, 0);
  EXPECT_THROW(model_of({"model.rope_type=linear"}), Error) << "needs a factor of its own";
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
               "the sizes come from its config.json");
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
  // The key on the command line wins over one that it excludes.
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
  const std::string number = refusal(kSmallest, {"optimizer.learning_rate="}).what();
  EXPECT_EQ(number.find("empty"), std::string::npos);
}

TEST(RunConfig, FilesThatCannotBeRead) {
  const auto load = [](const std::string& path) {
    return what_of([&] { load_run_config(path); }, ExitCode::kUsage);
  };
  EXPECT_HAS(load(""), "config file is required");
  EXPECT_HAS(load("/no/such/file.toml"), "/no/such/file.toml: cannot open: No such file");
  EXPECT_HAS(load("/tmp"), "is a directory");
}

// Hints for a wrong path: the near name beside it, or the config in it.
TEST(RunConfig, FilesThatCannotBeReadAreAnsweredWithThoseThatCan) {
  const ScratchDirectory scratch;
  for (const char* name : {"first.toml", "run/config.toml", "configs/b.toml", "configs/a.toml", "none/x.txt"})
    write_bytes(scratch / name, "");
  const auto hint = [&](const std::string& name) {
    const Error error = error_of([&] { load_run_config((scratch / name).string()); });
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.hint();
  };
  EXPECT_EQ(hint("frist.toml"), "did you mean " + (scratch / "first.toml").string() + "?");
  EXPECT_EQ(hint("first"), "did you mean " + (scratch / "first.toml").string() + "?");
  EXPECT_EQ(hint("run"), "give " + (scratch / "run/config.toml").string());
  EXPECT_EQ(hint("configs"), "give a file in it, such as " + (scratch / "configs/a.toml").string());
  EXPECT_EQ(hint("none"), "give a file, as in ripstop train CONFIG.toml");
  EXPECT_HAS(hint("other.toml"), "a relative path counts from the current directory, /");
  EXPECT_HAS(hint("no/such/first.toml"), "a relative path counts from the current directory, /");
  // A dangling link has the given name itself.
  std::filesystem::create_symlink("gone.toml", scratch / "first2.toml");
  EXPECT_EQ(hint("first2.toml"), "it is a link to gone.toml, which is not there");
}

TEST(RunConfig, NamesBesideAnAbsentPathAreSuggestedIfTheyHoldWhatIsWanted) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "dat", "a file");
  write_bytes(scratch / "data1/notes.txt", "");
  write_bytes(scratch / "my data/train.h5", "");
  write_bytes(scratch / "data22/train.h5", "");
  const std::string place = scratch.path().string();
  EXPECT_EQ(hint_for_absent(scratch / "data/", ""), "did you mean " + place + "/dat?");
  EXPECT_EQ(hint_for_absent(scratch / "data", "", "train.h5"), "");
  EXPECT_EQ(hint_for_absent(scratch / "data2/", "data.directory=", "train.h5"),
            "did you mean data.directory=" + place + "/data22?");
  EXPECT_EQ(hint_for_absent(scratch / "my_data", "--data ", "train.h5"),
            "did you mean --data '" + place + "/my data'?");
  EXPECT_EQ(hint_for_absent(scratch / "data1", "", "train.h5"), "") << "it is there";
  EXPECT_EQ(hint_for_absent(scratch / "data22/train.h5", "data.directory=", "train.h5"),
            "did you mean data.directory=" + place + "/data22?");
  EXPECT_EQ(hint_for_absent(scratch / "dat", "data.directory=", "train.h5"), "") << "of no data set";
  std::filesystem::create_symlink(scratch / "gone", scratch / "data3");
  EXPECT_EQ(hint_for_absent(scratch / "data3/", "data.directory=", "train.h5"),
            "it is a link to " + place + "/gone, which is not there");
  // A link to itself: the system cannot say whether the file exists.
  std::filesystem::create_symlink("data4", scratch / "data4");
  EXPECT_EQ(hint_for_absent(scratch / "data4", "", "train.h5"), "");
  EXPECT_EQ(hint_for_absent("", ""), "");
  for (const char* of_the_system : {"/proc/self/cmdlin", "/proc/self/../self/cmdlin", "/dev/fd/77"})
    EXPECT_EQ(hint_for_absent(of_the_system, ""), "") << of_the_system;
}

TEST(RunConfig, AFolderOfManyFilesIsNotReadToItsEnd) {
  const ScratchDirectory scratch;
  for (int i = 0; i < 10'001; ++i) std::ofstream(scratch / std::to_string(i));
  EXPECT_EQ(names_in(scratch.path()).size(), 10'000u);
  EXPECT_TRUE(names_in(scratch / "absent").empty());
}

// Each message says what to type next.
TEST(RunConfig, RulesBetweenKeysHaveHints) {
  expect_usage(refusal(kSmallest, {"schedule.warmup_steps=101"}), "exceeds train.steps",
               "warm up for a few percent");
  expect_usage(refusal(kSmallest, {"train.micro_batch_sequences=9"}), "exceeds train.global_batch",
               "leave it out");
  expect_usage(refusal(kSmallest, {"run.profile_steps=10"}), "must be first-last",
               "profile_steps = \"10-12\"");
  expect_usage(refusal(kSmallest, {"run.profile_steps=99-101"}), "ends at step 101",
               "profile_steps = \"10-12\"");
  expect_usage(refusal(kSmallest, {"run.directory=\"\""}), "must not be empty", "directory = \"runs/first\"");
  std::string toml = kSmallest;
  toml.replace(toml.find("preset = \"15m\""), 14, "hidden_size = 64");
  expect_usage(refusal(toml), "'model.intermediate_size' is required if there is no preset", "model.preset");
}

// Problems of all kinds come in one message, so that people can fix them together.
TEST(RunConfig, AllProblemsAreToldAtOnce) {
  std::string toml = with("log", "tensorboard = 1");
  toml.insert(toml.find("steps = 100"), "stesp = 5\n");
  toml.insert(toml.find("learning_rate"), "betas = 3\n");
  const Error result = refusal(toml, {"run.directory=\"\""});
  expect_usage(result, "x.toml:10: unknown key 'train.stesp' (did you mean 'train.steps'?);\nx.toml:14: ");
  expect_usage(
      result,
      "'optimizer.betas' must be an array of two numbers, got 3;\nx.toml:17: 'log.tensorboard' must be true "
      "or false, got 1 (write tensorboard = true);\ncommand line: 'run.directory' must not be empty");
  // Rules between keys, too.
  const Error rules = refusal(kSmallest, {"schedule.warmup_steps=101", "model.hidden_size=290"});
  expect_usage(rules, "schedule.warmup_steps 101 exceeds train.steps 100 (");
  expect_usage(rules, "hidden_size");
  // Problems come in the order of lines; problems of the command line come last.
  const std::string what =
      refusal(with("run", "profile_steps = \"99-101\"") + "[checkpoint]\nkeep_best = \"rougeL\"\n",
              {"schedule.warmup_steps=101"})
          .what();
  EXPECT_TRUE(what.starts_with("x.toml:3: 'run.profile_steps'")) << what;
  EXPECT_HAS(what.substr(what.find("'checkpoint.keep_best'")), "command line: schedule.warmup_steps 101");
  // A misspelled required key is one problem.
  std::string renamed = kSmallest;
  renamed.replace(renamed.find("learning_rate"), 13, "lr");
  expect_usage(refusal(renamed), "x.toml:13: unknown key 'optimizer.lr'",
               "did you mean 'optimizer.learning_rate'?");
  // An unknown key beside a missing key are two problems.
  expect_usage(refusal("[run]\ncolour = 1\n"), "'run.directory' is required", "docs/config.md");
}

TEST(RunConfig, ShippedConfigsAreValid) {
  int64_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(RIPSTOP_SOURCE_DIR) / "configs")) {
    const RunConfig config = load_run_config(entry.path().string());
    EXPECT_EQ(parsed(to_toml(config)), config) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 4);
}

TEST(RunConfig, GenerationThatCannotBeIsRefused) {
  expect_usage(refusal(kSmallest, {"generation.num_beams=4", "generation.do_sample=true"}),
               "command line: 'generation.do_sample' draws tokens, 'generation.num_beams' = 4 searches",
               "generation.num_beams = 1 or generation.do_sample = false");
  expect_usage(refusal(kSmallest, {"generation.min_new_tokens=65"}),
               "generation.min_new_tokens 65 exceeds generation.max_new_tokens 64", "ask for fewer");
  for (const char* temperature : {"0", "0.0", "-1"})
    expect_usage(refusal(kSmallest, {std::string("generation.temperature=") + temperature}),
                 "'generation.temperature' must be above 0", "generation.do_sample = false");
  for (const char* top_p : {"0", "1.01", "-0.5"})
    expect_usage(refusal(kSmallest, {std::string("generation.top_p=") + top_p}),
                 "'generation.top_p' must be above 0 and at most 1", "generation.top_p = 1.0");
  expect_usage(refusal(kSmallest, {"generation.early_stopping=maybe"}),
               "one of \"false\", \"true\", \"never\"");
}

TEST(RunConfig, EarlyStoppingTakesWordsAndBooleans) {
  const auto stopping = [](const std::string& value) {
    return parsed(kSmallest, {"generation.early_stopping=" + value}).generation.early_stopping;
  };
  EXPECT_EQ(stopping("true"), EarlyStopping::kTrue);
  EXPECT_EQ(stopping("false"), EarlyStopping::kFalse);
  EXPECT_EQ(stopping("never"), EarlyStopping::kNever);
  EXPECT_EQ(stopping("\"true\""), EarlyStopping::kTrue);
  expect_usage(refusal(kSmallest, {"run.device=true"}), "'run.device' must be one of");
}

TEST(RunConfig, NotesGenerationThatChangesNothing) {
  const auto notes = [](const std::vector<std::string>& overrides) {
    return ignored_generation_notes(parsed(kSmallest, overrides));
  };
  EXPECT_TRUE(notes({}).empty());
  EXPECT_TRUE(notes({"generation.num_beams=2", "generation.length_penalty=0.6"}).empty());
  EXPECT_TRUE(
      notes({"generation.do_sample=true", "generation.temperature=0.6", "generation.top_k=5"}).empty());
  const std::vector<std::string> all = notes(
      {"generation.length_penalty=0.6", "generation.temperature=0.6", "generation.no_repeat_ngram_size=3"});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(
      all[0],
      "generation.length_penalty = 0.6 changes nothing: it is for beams, and generation.num_beams is 1");
  EXPECT_EQ(
      all[1],
      "generation.temperature = 0.6 changes nothing: it is for sampling, and generation.do_sample is false");
}

}  // namespace
}  // namespace ripstop
