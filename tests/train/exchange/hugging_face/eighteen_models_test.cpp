// The table of published models in docs/pretrained.md, from the facts in tests/golden/eighteen_models.json.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/expect_has.h"
#include "tests/test_files.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

std::string parts_text(const ModelConfig& m) {
  std::string text;
  const auto add = [&](bool has, const std::string& part) {
    if (has) text += (text.empty() ? "" : ", ") + part;
  };
  add(m.tie_word_embeddings, "tied");
  add(m.query_size() != m.hidden_size, fmt::format("heads of {}", m.head_dim));
  add(m.attention_bias != AttentionBias::kNone, fmt::format("biases of {}", to_string(m.attention_bias)));
  add(m.qk_norm, "norms of heads");
  add(m.sliding_window > 0, fmt::format("window {}", m.sliding_window));
  add(m.rope_type != RopeType::kDefault, fmt::format("rope {} x {}", to_string(m.rope_type), m.rope_factor));
  return text;
}

std::string row_of(const nlohmann::json& row) {
  const std::string name = row["model"];
  const ModelConfig m = parse_pretrained_config(row["config"].dump(), name);
  EXPECT_EQ(parameter_count(m), row["parameters"].get<int64_t>()) << name;
  const int64_t longest = m.sliding_window > 0 ? std::min(m.sliding_window, m.max_position_embeddings)
                                               : m.max_position_embeddings;
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", name,
                     row["config"]["architectures"][0].get<std::string>(), parameter_count(m), parts_text(m),
                     longest, row["tokenizer"].get<std::string>(), row["weights"].get<std::string>(),
                     row["of_its_config_json"].get<bool>() ? "its own" : "from its card");
}

TEST(EighteenModels, TheTableInTheDocs) {
  std::string table =
      "| model | architecture | parameters | beside LLaMA 2 | longest sequence | tokenizer | weights | "
      "config.json |\n"
      "|---|---|---|---|---|---|---|---|\n";
  const auto rows = nlohmann::json::parse(std::ifstream(golden_file("eighteen_models.json")));
  ASSERT_EQ(rows.size(), 18);
  for (const nlohmann::json& row : rows) table += row_of(row);
  const std::string docs = read_text(std::filesystem::path(RIPSTOP_SOURCE_DIR) / "docs" / "pretrained.md");
  EXPECT_HAS(docs, table) << table;
}

}  // namespace
}  // namespace ripstop
