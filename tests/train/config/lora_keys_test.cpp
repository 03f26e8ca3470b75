// The section [lora]: adapters of a pretrained model.
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

// The smallest config of adapters, and lines for [lora].
std::string lora_toml(const std::string& lines = "rank = 8\nalpha = 16\n") {
  std::string toml = kSmallest;
  const std::string preset = "preset = \"15m\"";
  toml.replace(toml.find(preset), preset.size(), "pretrained = \"models/a\"");
  return toml + "[lora]\n" + lines;
}

TEST(LoraKeys, DefaultsAreThoseOfAttention) {
  const LoraSection lora = parsed(lora_toml()).lora;
  EXPECT_EQ(lora.rank, 8);
  EXPECT_EQ(lora.alpha, 16.0);
  EXPECT_EQ(lora.dropout, 0.0);
  EXPECT_FALSE(lora.rslora);
  EXPECT_EQ(lora.targets, (std::array<bool, 7>{true, true, true, true, false, false, false}));
  EXPECT_EQ(lora.adapter, "");
  EXPECT_FALSE(parsed(kSmallest).lora.any());
}

TEST(LoraKeys, EveryKeyIsReadAndWritten) {
  const RunConfig config =
      parsed(lora_toml("rank = 4\nalpha = 2.5\ndropout = 0.05\ntargets = [\"down_proj\", \"q_proj\"]\n"
                       "rslora = true\nadapter = \"adapters/a\"\n"));
  EXPECT_EQ(config.lora.rank, 4);
  EXPECT_EQ(config.lora.alpha, 2.5);
  EXPECT_EQ(config.lora.dropout, 0.05);
  EXPECT_TRUE(config.lora.rslora);
  EXPECT_EQ(config.lora.targets, (std::array<bool, 7>{true, false, false, false, false, false, true}));
  EXPECT_EQ(config.lora.adapter, "adapters/a");
  const std::string written = to_toml(config);
  EXPECT_HAS(written, "targets = [\"q_proj\", \"down_proj\"]");
  EXPECT_TRUE(parse_run_config(written, "written") == config);
}

// Adapters keep the embedding as it is, and a new model has the rows that it needs.
TEST(LoraKeys, OnlyATrainedPretrainedModelGetsMoreRows) {
  std::string toml = kSmallest;
  toml.replace(toml.find("preset = \"15m\""), 14, "pretrained = \"a\"\nresize_vocabulary = \"mean\"");
  const RunConfig config = parsed(toml);
  EXPECT_EQ(config.model.resize_vocabulary, ResizeVocabulary::kMean);
  EXPECT_TRUE(parse_run_config(to_toml(config), "written") == config);
  EXPECT_EQ(parsed(toml, {"model.pretrained=b"}).model.resize_vocabulary, ResizeVocabulary::kMean);
  EXPECT_EQ(parsed(toml, {"model.preset=15m"}).model.resize_vocabulary, ResizeVocabulary::kNone);
  expect_usage(refusal(toml + "[lora]\nrank = 8\nalpha = 16\n"), "the embedding, which stays frozen");
  expect_usage(refusal(kSmallest, {"model.resize_vocabulary=normal"}), "is for a 'model.pretrained'");
  expect_usage(refusal(toml, {"model.resize_vocabulary=zero"}), "one of \"none\", \"mean\", \"normal\"");
}

// A run without adapters stores no key of [lora] that would be refused with rank 0.
TEST(LoraKeys, WithoutAdaptersTheRankAloneIsWritten) {
  const std::string written = to_toml(parsed(kSmallest));
  EXPECT_HAS(written, "[lora]\nrank = 0\n\n");
  EXPECT_TRUE(parse_run_config(written, "written") == parsed(kSmallest));
}

TEST(LoraKeys, ARankOfZeroRemovesWhatTheFileSaysOfAdapters) {
  const std::string toml = lora_toml("rank = 4\nalpha = 2.5\nrslora = true\n");
  const RunConfig config = parsed(toml, {"lora.rank=0"});
  EXPECT_TRUE(config.lora == LoraSection());
  EXPECT_EQ(config.model.pretrained, "models/a");
  // With another rank the other keys of [lora] stay.
  EXPECT_EQ(parsed(toml, {"lora.rank=2"}).lora.alpha, 2.5);
}

TEST(LoraKeys, TargetsOnTheCommandLineNeedNoQuotes) {
  const std::array<bool, 7> wanted{true, false, true, false, false, false, false};
  for (const char* list : {"[q_proj,v_proj]", "q_proj,v_proj", "[ v_proj , q_proj ]",
                           "[\"q_proj\",\"v_proj\"]", "['q_proj', 'v_proj']"})
    EXPECT_EQ(parsed(lora_toml(), {std::string("lora.targets=") + list}).lora.targets, wanted) << list;
  EXPECT_EQ(parsed(lora_toml(), {"lora.targets=v_proj"}).lora.targets,
            (std::array<bool, 7>{false, false, true, false, false, false, false}));
}

TEST(LoraKeys, ImpossibleValuesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"rank = -1\nalpha = 1\n", "x.toml:15: 'lora.rank' must be at least 0"},
      {"rank = 2.5\nalpha = 1\n", "'lora.rank' must be an integer, got 2.5"},
      {"rank = 9000000000\nalpha = 1\n", "'lora.rank' must be at least 0 and at most 1048576"},
      {"rank = 8\nalpha = 0\n", "x.toml:16: 'lora.alpha' must be above 0"},
      {"rank = 8\nalpha = nan\n", "'lora.alpha' must be above 0"},
      {"rank = 8\nalpha = -16\n", "'lora.alpha' must be above 0"},
      {"rank = 8\nalpha = 16\ndropout = 1.0\n", "'lora.dropout' must be at least 0 and below 1, got 1"},
      {"rank = 8\nalpha = 16\ndropout = -0.1\n", "'lora.dropout' must be at least 0 and below 1"},
      {"rank = 8\nalpha = 16\ntargets = []\n", "'lora.targets' must be an array of some of \"q_proj\", "},
      {"rank = 8\nalpha = 16\ntargets = [1, 2]\n", "'lora.targets' must be an array of some of \"q_proj\""},
      {"rank = 8\nalpha = 16\ntargets = [\"q_proj\", 2]\n", "'lora.targets' must be an array of some of"},
      {"rank = 8\nalpha = 16\ntargets = true\n", "'lora.targets' must be an array of some of"},
      {"rank = 8\nalpha = 16\ntargets = [\"q_proj\", \"lm_head\"]\n",
       "'lora.targets' has \"lm_head\", which is none of \"q_proj\", \"k_proj\""},
      {"rank = 8\nalpha = 16\ntargets = [\"q_proj\", \"v_proj\", \"q_proj\"]\n",
       "x.toml:17: 'lora.targets' has \"q_proj\" twice"},
  };
  for (const auto& [lines, what] : cases) expect_usage(refusal(lora_toml(lines)), what);
  expect_usage(refusal(lora_toml(), {"lora.targets="}), "'lora.targets' must be an array");
  expect_usage(refusal(lora_toml(), {"lora.targets=[q_proj,,v_proj]"}), "'lora.targets' has \"\"");
}

TEST(LoraKeys, TargetsFromElsewhereGetTheLineToWrite) {
  const auto hint = [](const std::string& list) {
    const Error result = refusal(lora_toml("rank = 8\nalpha = 16\ntargets = " + list + "\n"));
    EXPECT_EQ(result.code(), ExitCode::kUsage) << list;
    return result.hint();
  };
  EXPECT_EQ(hint("[\"q_porj\", \"v_proj\"]"), "write targets = [\"q_proj\", \"v_proj\"]");
  EXPECT_EQ(hint("[\"wq\", \"wk\", \"wv\", \"output_proj\", \"w1\", \"w3\", \"w2\"]"),
            "write targets = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\", "
            "\"down_proj\"]");
  EXPECT_EQ(hint("\"all-linear\""),
            "write targets = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\", "
            "\"down_proj\"]");
  EXPECT_EQ(hint("\"q_proj\""), "write targets = [\"q_proj\"]");
  EXPECT_EQ(hint("[\"q_proj\", \"embed_tokens\"]"), "");
  EXPECT_EQ(refusal(lora_toml(), {"lora.targets=qproj,v_proj"}).hint(), "write lora.targets=q_proj,v_proj");
}

TEST(LoraKeys, AdaptersNeedAModelAndAnAlpha) {
  expect_usage(refusal(std::string(kSmallest) + "[lora]\nrank = 8\nalpha = 16\n"),
               "x.toml:15: 'lora.rank' trains adapters of a model, and 'model.pretrained' has none",
               "give model.pretrained");
  expect_usage(refusal(lora_toml("rank = 8\n")), "x.toml:15: 'lora.alpha' is required with a rank",
               "alpha = 16 under [lora]");
  expect_usage(refusal(lora_toml(), {"model.preset=15m"}), "'model.pretrained' has none");
}

TEST(LoraKeys, WithoutARankNothingElseMayBeGiven) {
  for (const char* line : {"alpha = 16", "dropout = 0.1", "targets = [\"q_proj\"]", "rslora = false",
                           "adapter = \"adapters/a\""}) {
    const std::string key = std::string(line).substr(0, std::string(line).find(' '));
    for (const char* rank : {"", "rank = 0\n"}) {
      const Error result = refusal(lora_toml(std::string(rank) + line + "\n"));
      expect_usage(result, "'lora." + key + "' is of adapters, and there are none", "set lora.rank");
    }
  }
  EXPECT_EQ(refusal(lora_toml("rank = 0\n")).code(), ExitCode::kOk);
}

// For PEFT's features that ripstop lacks, the hint says so and guesses no key.
TEST(LoraKeys, WhatIsNotDoneIsSaid) {
  const auto hint = [](const std::string& line) {
    const Error result = refusal(lora_toml("rank = 8\nalpha = 16\n" + line + "\n"));
    EXPECT_EQ(result.code(), ExitCode::kUsage) << line;
    EXPECT_HAS(result.what(), "x.toml:17: unknown key 'lora.");
    return result.hint();
  };
  for (const char* line :
       {"use_dora = true", "dora = true", "rank_pattern = { q_proj = 4 }", "alpha_pattern = { q_proj = 4 }",
        "bias = \"all\"", "lora_bias = true", "modules_to_save = [\"lm_head\"]", "layers_to_transform = [0]",
        "init_lora_weights = \"pissa\""})
    EXPECT_HAS(hint(line), "not in ripstop: ");
  EXPECT_EQ(hint("r = 4"), "did you mean 'lora.rank'?");
  EXPECT_EQ(hint("lora_alpha = 4"), "did you mean 'lora.alpha'?");
  EXPECT_EQ(hint("target_modules = []"), "did you mean 'lora.targets'?");
  EXPECT_EQ(hint("use_rslora = true"), "did you mean 'lora.rslora'?");
  EXPECT_EQ(refusal(kSmallest, {"train.lora_r=8"}).hint(), "did you mean 'lora.rank'?");
  EXPECT_HAS(refusal(std::string(kSmallest) + "[peft]\nr = 8\n").hint(), "did you mean [lora]?");
}

TEST(LoraKeys, AResumedRunKeepsItsAdapters) {
  const RunConfig before = parsed(lora_toml());
  const auto refused = [&](const RunConfig& after) {
    return what_of([&] { check_resume(before, after); }, ExitCode::kUsage);
  };
  EXPECT_HAS(refused(parsed(lora_toml(), {"lora.rank=4"})), "lora.rank: 8 -> 4");
  EXPECT_HAS(refused(parsed(lora_toml(), {"lora.alpha=8"})), "lora.alpha: 16.0 -> 8.0");
  EXPECT_HAS(refused(parsed(lora_toml(), {"lora.dropout=0.1"})), "lora.dropout: 0.0 -> 0.1");
  EXPECT_HAS(refused(parsed(lora_toml(), {"lora.rslora=true"})), "lora.rslora: false -> true");
  EXPECT_HAS(refused(parsed(lora_toml(), {"lora.targets=q_proj"})),
             "lora.targets: [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"] -> [\"q_proj\"]");
  EXPECT_HAS(refused(parsed(lora_toml(), {"lora.rank=0"})), "lora.rank: 8 -> 0, lora.alpha: 16.0 -> (none)");
  // The order of a list has no meaning.
  EXPECT_EQ(check_resume(before, parsed(lora_toml(), {"lora.targets=o_proj,v_proj,k_proj,q_proj"})).size(),
            0u);
  // The base of adapters may have moved: its hash identifies it. Without adapters model.pretrained may not
  // change.
  EXPECT_EQ(check_resume(before, parsed(lora_toml(), {"model.pretrained=elsewhere"})).size(), 1u);
  EXPECT_HAS(refused(parsed(lora_toml(), {"model.pretrained=elsewhere", "lora.rank=0"})),
             "model.pretrained: \"models/a\" -> \"elsewhere\", lora.rank: 8 -> 0");
  const RunConfig whole = parsed(lora_toml("rank = 0\n"));
  EXPECT_THROW(check_resume(whole, parsed(lora_toml("rank = 0\n"), {"model.pretrained=elsewhere"})), Error);
  // lora.adapter has no effect on a run that has begun.
  const std::vector<ConfigDifference> accepted =
      check_resume(before, parsed(lora_toml(), {"lora.adapter=elsewhere"}));
  ASSERT_EQ(accepted.size(), 1u);
  EXPECT_EQ(accepted[0].text(), "lora.adapter: (none) -> \"elsewhere\"");
}

}  // namespace
}  // namespace ripstop
