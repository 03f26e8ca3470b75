#include "train/config/config_entries.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

using small_config::expect_usage;
using small_config::kSmallest;
using small_config::parsed;
using small_config::refusal;

TEST(ConfigEntries, SyntaxErrorsNameLineAndColumn) {
  expect_usage(refusal("[run]\nseed = = 5\n"), "x.toml:2:8: ", "the line is: seed = = 5");
  expect_usage(refusal("[run]\r\n  seed = = " + std::string(100, '5') + "\r\n"), "x.toml:2:", "555...");
  expect_usage(refusal("[run\n"), "x.toml:1:");
  // Lines as in YAML, JSON and Python say what TOML has.
  const auto hint = [](const std::string& toml) { return refusal(toml).hint(); };
  EXPECT_EQ(hint("run:\n  directory: runs/y\n"), "a config is TOML: [run]");
  EXPECT_EQ(hint("[run]\ndirectory: runs/y  # here\n"), "a config is TOML: directory = \"runs/y\"");
  EXPECT_EQ(hint("[train]\nsteps: 100\n"), "a config is TOML: steps = 100");
  EXPECT_EQ(hint("[run]\ndirectory = runs/y\n"), "write directory = \"runs/y\": a text needs quotes");
  EXPECT_EQ(hint("[data]\npack = True\n"), "write pack = true");
  EXPECT_EQ(hint("[optimizer]\nlearning_rate = .003  # peak\n"), "write learning_rate = 0.003");
  EXPECT_EQ(hint("[optimizer]\nlearning_rate = 2.\n"), "write learning_rate = 2");
  EXPECT_EQ(hint("[train]\nsteps = 0100\n"), "write steps = 100");
  EXPECT_EQ(hint("[optimizer]\nlearning_rate = 3e-3f\n"), "the line is: learning_rate = 3e-3f");
  EXPECT_HAS(hint("{\n  \"run\": {}\n}\n"), "a config is TOML");
  EXPECT_EQ(hint("; seeds\n"), "a comment begins with #");
  EXPECT_HAS(hint("[run]\nseed = 1_\n"), "the line is: seed = 1_");
  expect_usage(refusal("[run]\nseed = 1\n# text\nseed = 2\n"),
               "x.toml:4: 'seed' is given twice (lines 2 and 4)", "keep one of the two");
  expect_usage(refusal("[run]\nseed = 1\n[run]\ndevice = 'cpu'\n"), "x.toml:3: 'run' is given twice");
  expect_usage(refusal("[run]\ndirectory = \"\xff\xfe\"\n"), "utf-8");
  EXPECT_EQ(parsed("\xef\xbb\xbf" + std::string(kSmallest)).train.steps, 100);
}

TEST(ConfigEntries, HostileFilesAreRefusedQuickly) {
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

// A shell cuts `key = value` into three words.
TEST(ConfigEntries, OverridesTypedWithSpacesAreShownWithout) {
  const std::string key = "optimizer.learning_rate";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{key, "=", "1e-3"}, {key + "=", "1e-3"}, {key, "=1e-3"}})
    expect_usage(refusal(kSmallest, words), "command line: 'optimizer.learning_rate",
                 "no spaces around =: " + key + "=1e-3");
  expect_usage(refusal(kSmallest, {"run.directory", "=", "my runs"}), "'run.directory = my runs' has spaces",
               "no spaces around =: 'run.directory=my runs'");
  const std::string several = refusal(kSmallest, {"run.sed=1", key, "=", "1e-3", "steps"}).what();
  EXPECT_HAS(several, "'run.sed'");
  EXPECT_HAS(several, "(no spaces around =: " + key + "=1e-3)");
  EXPECT_HAS(several, "'steps' is not section.key=value");
  expect_usage(refusal(kSmallest, {"run.directory=" + std::string(5000, 'a')}),
               "has 5014 bytes, at most 4096");
  EXPECT_EQ(several.find("unknown key ''"), std::string::npos) << several;
  // An override with an empty value comes last, or in front of another override.
  expect_usage(refusal(kSmallest, {key + "=", "run.seed=1"}), "must be a number, got \"\"");
}

// Random bytes are accepted, or refused as a usage or mesh error.
TEST(ConfigEntries, DamagedFilesAreRefusedCleanly) {
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

}  // namespace
}  // namespace ripstop
