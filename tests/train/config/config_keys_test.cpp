#include "train/config/config_keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/train/config/small_config.h"
#include "train/config/run_config.h"

namespace ripstop {
namespace {

// docs/config.md holds what `ripstop config-table` prints.
TEST(ConfigKeys, DocsHaveTheTable) {
  std::ifstream file(std::filesystem::path(RIPSTOP_SOURCE_DIR) / "docs/config.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const size_t from = page.find("| key |"), to = page.find("<!-- /config-table -->");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(page.substr(from, to - from), config_table_markdown());
}

TEST(ConfigKeys, TableOfKeysIsWhole) {
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
}

TEST(ConfigKeys, EachFieldOfAModelIsAKey) {
  std::vector<std::string_view> keys, fields;
  for (const ConfigKey& key : config_keys())
    if (key.section == "model" && key.presence == Presence::kDefault && key.name != "resize_vocabulary")
      keys.push_back(key.name);
  for_each_field(ModelConfig(), [&](const char* name, const auto&, auto&&...) { fields.emplace_back(name); });
  EXPECT_EQ(keys, fields);
}

}  // namespace
}  // namespace ripstop
