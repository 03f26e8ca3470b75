// Keys of several data sets.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/train/config/small_config.h"
#include "train/config/run_config.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

RunConfig with(std::vector<std::string> overrides) {
  return parsed(kSmallest, overrides);
}

TEST(DataSection, OneOrSeveralDirectories) {
  const RunConfig one = with({});
  EXPECT_EQ(one.data.all(), std::vector{one.data.directory});
  EXPECT_TRUE(one.data.shares().empty());
  const RunConfig several = with({"data.directories=[\"data/a\", \"~/b\"]", "data.weights=[3, 1]"});
  EXPECT_EQ(several.data.directory, "") << "the command line's directories replace the file's directory";
  EXPECT_EQ(several.data.all().front(), "data/a");
  EXPECT_EQ(several.data.first(), "data/a");
  EXPECT_EQ(several.data.all().back(), std::string(std::getenv("HOME")) + "/b");
  EXPECT_EQ(several.data.shares(), (std::vector<double>{0.75, 0.25}));
  EXPECT_EQ(parsed(to_toml(several)), several) << to_toml(several);
  EXPECT_EQ(to_toml(several).find("directory = \"\""), std::string::npos);
  // Shells remove quotes.
  EXPECT_EQ(with({"data.directories=[data/a, my data/b ]", "data.weights=3,1"}).data.all(),
            (std::vector<std::string>{"data/a", "my data/b"}));
  EXPECT_EQ(with({"data.directories=[sets/[a],b"}).data.first(), "[sets/[a]");
  EXPECT_EQ(parsed(to_toml(several), {"data.directory=data/c"}).data.all(),
            std::vector<std::string>{"data/c"});
}

TEST(DataSection, WrongKeysAreRefusedInOneLine) {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    return what_and_hint_of([&] { with(overrides); }, ExitCode::kUsage);
  };
  const std::string two = "data.directories=[\"a\", \"b\"]";
  EXPECT_HAS(refusal({"data.weights=[1, 2]"}), "'data.weights' are of data sets in 'data.directories'");
  EXPECT_HAS(refusal({two, "data.weights=[1, 2, 3]"}),
             "'data.weights' has 3 numbers, 'data.directories' 2 paths");
  EXPECT_HAS(refusal({two, "data.weights=[1, -0.5]"}), "'data.weights' must be at least 0");
  EXPECT_HAS(refusal({two, "data.weights=[1, nan]"}), "'data.weights' must be at least 0");
  EXPECT_HAS(refusal({two, "data.weights=[0, 0]"}), "'data.weights' are all 0");
  EXPECT_HAS(refusal({two, "data.weights=0.5"}), "has 1 numbers");
  EXPECT_HAS(refusal({two, "data.weights=half"}), "'data.weights' must be an array of numbers, got \"half\"");
  EXPECT_HAS(
      refusal({two, "data.weights=[1, 2]", "train.epochs=2"}),
      "'train.epochs' cannot stand beside 'data.weights', with which each data set has epochs of its own "
      "| give train.steps");
  EXPECT_HAS(refusal({"data.directories=[\"a\", \"a\"]"}), "'data.directories' has \"a\" twice");
  EXPECT_HAS(refusal({"data.directories=[\"a\", \"./a/\"]"}), "'data.directories' has \"a\" twice");
  EXPECT_HAS(refusal({"data.directories=[\"a\", \"\"]"}), "none of them empty");
  EXPECT_HAS(refusal({"data.directories=[]"}), "'data.directories' must have 1 to 100 paths");
  EXPECT_HAS(refusal({"data.directories=[1, 2]"}), "'data.directories' must be an array of strings");
  EXPECT_EQ(refusal({two, "train.epochs=2"}), "");
  EXPECT_EQ(refusal({two, "data.weights=[1, 0]"}), "");
  std::string file = kSmallest;
  file.insert(file.find("[data]\n") + 7, "directories = [\"a\"]\n");
  EXPECT_THROW(parsed(file), Error) << "both are given";
  std::string list = kSmallest;
  list.replace(list.find("directory = \"d"), 12, "directory = [\"a\"] # ");
  expect_error([&] { parsed(list); }, ExitCode::kUsage, "", "several data sets are data.directories");
}

// Directories may change, because contents are compared; weights only if that is allowed.
TEST(DataSection, WeightsMayChangeIfAllowedButNotVanish) {
  const std::string two = "data.directories=[\"a\", \"b\"]";
  const auto difference = [&](std::vector<std::string> before, std::vector<std::string> after) {
    before.push_back(two), after.push_back(two);
    const auto differences = compare(with(before), with(after));
    EXPECT_EQ(differences.size(), 1u);
    return differences.at(0);
  };
  EXPECT_TRUE(difference({"data.weights=[1, 2]"}, {"data.weights=[1, 3]"}).may_change_if_allowed);
  EXPECT_FALSE(difference({"data.weights=[1, 2]"}, {"data.weights=[1, 3]"}).may_change_on_resume);
  EXPECT_FALSE(difference({"data.weights=[1, 2]"}, {}).may_change_if_allowed);
  EXPECT_FALSE(difference({}, {"data.weights=[1, 2]"}).may_change_if_allowed);
  for (const ConfigDifference& each : compare(with({}), with({two}))) EXPECT_TRUE(each.may_change_on_resume);
  const RunConfig weighted = with({two, "data.weights=[1, 2]"});
  RunConfig other = weighted;
  other.data.weights = {1, 3};
  EXPECT_EQ(with_changes(weighted, compare(weighted, other)), other);
}

}  // namespace
}  // namespace ripstop
