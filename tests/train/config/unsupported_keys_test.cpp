#include "train/config/unsupported_keys.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/config/small_config.h"
#include "train/config/config_keys.h"
#include "train/config/run_config.h"

namespace ripstop {
namespace {

using small_config::expect_usage;
using small_config::kSmallest;
using small_config::parsed;
using small_config::Refusal;
using small_config::refusal;

// Keys that this version does not do, one line of a config each.
const std::vector<std::pair<std::string, std::string>> kUnsupported = {{"log.tensorboard", "true"}};

Refusal refused_by(ConfigReader reader, const RunConfig& config) {
  try {
    refuse_unsupported_keys(config, reader, [](const ConfigKey& key) { return "at " + key.path(); });
  } catch (const Error& error) {
    return {error.code(), error.what(), error.hint()};
  }
  return {};
}

TEST(UnsupportedKeys, KeysThatThisVersionDoesNotDoAreRefusedByWhoReadsThem) {
  for (const auto& [key, value] : kUnsupported) {
    const RunConfig config = parsed(kSmallest, {key + "=" + value});
    expect_usage(refused_by(ConfigReader::kTrain, config), "at " + key + ": " + key + " = ", key + " = ");
    ASSERT_EQ(unsupported_key_notes(config).size(), 1u) << key;
    EXPECT_HAS(unsupported_key_notes(config)[0], key + " = ");
  }
  for (const ConfigReader reader : {ConfigReader::kTrain, ConfigReader::kResume})
    EXPECT_EQ(refused_by(reader, parsed(kSmallest)).code, ExitCode::kOk);
}

// A key that is documented as missing is refused, and a key that is refused is documented.
TEST(UnsupportedKeys, TheDocumentationMarksThemAll) {
  std::set<std::string> listed;
  for (const auto& [key, value] : kUnsupported) listed.insert(key);
  std::set<std::string> marked;
  for (const ConfigKey& key : config_keys())
    if (key.doc.find("ot in this version") != std::string_view::npos) marked.insert(key.path());
  EXPECT_EQ(marked, listed);
}

TEST(UnsupportedKeys, KeysThatThisVersionDoesNotDoAreListedAtOnce) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : kUnsupported) overrides.push_back(key + "=" + value);
  const RunConfig config = parsed(kSmallest, overrides);
  const Refusal refusal = refused_by(ConfigReader::kTrain, config);
  for (const auto& [key, value] : kUnsupported) expect_usage(refusal, "at " + key, key + " = ");
  EXPECT_EQ(unsupported_key_notes(config).size(), kUnsupported.size());
}

// A run of an older version stored such values, which had no effect. It must be able to go on.
TEST(UnsupportedKeys, ResumeMayMendWhatHadNoEffect) {
  for (const auto& [key, value] : kUnsupported) {
    const RunConfig before = parsed(kSmallest, {key + "=" + value});
    EXPECT_EQ(check_resume(before, parsed(kSmallest)).size(), 1u) << key;
  }
}

}  // namespace
}  // namespace ripstop
