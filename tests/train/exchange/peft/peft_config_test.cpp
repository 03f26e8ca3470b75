#include "train/exchange/peft/peft_adapter.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/test_files.h"
#include "tests/train/exchange/peft_directory.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<bool, 7> kAttention{true, true, true, true, false, false, false};
constexpr std::array<bool, 7> kAllTargets{true, true, true, true, true, true, true};
constexpr std::array<bool, 7> kGateAlone{false, false, false, false, true, false, false};

LoraConfig peft_with(const Json& changes) {
  Json config = PeftDirectory().config;
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return parse_peft_config(config.dump(), "DIR/adapter_config.json");
}

TEST(PeftConfig, HasWhatPeftSaved) {
  const LoraConfig config = peft_with(Json::object());
  EXPECT_EQ(config, (LoraConfig{.rank = 2,
                                .alpha = 8,
                                .dropout = 0.05,
                                .rslora = false,
                                .targets = {true, false, true, false, false, false, true}}));
  const LoraConfig golden = read_peft_config(golden_file("lora/all_untied_f32"));
  EXPECT_EQ(golden,
            (LoraConfig{.rank = 4, .alpha = 8, .dropout = 0, .rslora = true, .targets = kAllTargets}));
  EXPECT_FALSE(read_peft_config(golden_file("lora/qv_tied_f32")).has(LoraTarget::kKey));
}

// Files of older versions of peft have fewer keys; files of later versions have further empty keys.
TEST(PeftConfig, OldAndNewFilesAreRead) {
  const Json old = {{"peft_type", "LORA"}, {"r", 16}, {"lora_alpha", 32.5}, {"target_modules", {"q_proj"}}};
  const LoraConfig config = parse_peft_config(old.dump(), "x");
  EXPECT_EQ(config.rank, 16);
  EXPECT_EQ(config.alpha, 32.5);
  EXPECT_EQ(config.dropout, 0);
  EXPECT_FALSE(config.rslora);
  EXPECT_EQ(peft_with({{"of_2030", nullptr}, {"also", false}, {"list", Json::array()}}).rank, 2);
  EXPECT_EQ(peft_with({{"target_modules", "all-linear"}}).targets, kAllTargets);
  EXPECT_EQ(peft_with({{"use_rslora", true}}).rslora, true);
  for (const char* begin : {"gaussian", "orthogonal", "eva"})
    EXPECT_EQ(peft_with({{"init_lora_weights", begin}}).rank, 2) << begin;
  EXPECT_EQ(peft_with({{"task_type", nullptr}, {"base_model_name_or_path", nullptr}}).rank, 2);
}

TEST(PeftConfig, WhatChangesNothingIsRead) {
  const LoraConfig plain = peft_with(Json::object());
  for (const Json& changes :
       {Json{{"rank_pattern", {{"q_proj", 2}, {"lm_head", 5}}}}, Json{{"alpha_pattern", {{".*v_proj", 8.0}}}},
        Json{{"layers_to_transform", {0, 1}}}, Json{{"exclude_modules", "lm_head"}},
        Json{{"target_modules",
              {"self_attn.q_proj", "model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.v_proj",
               "down_proj"}}}})
    EXPECT_EQ(peft_with(changes), plain) << changes.dump();
}

TEST(PeftConfig, WhatIsNotComputedIsRefused) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"use_dora", true}}, "has use_dora true: ripstop has no DoRA"},
      {{{"rank_pattern", {{"q_proj", 4}}}},
       "has rank_pattern {\"q_proj\":4}: in ripstop all adapters have one rank"},
      {{{"alpha_pattern", {{"q_proj", 4}}}},
       "has alpha_pattern {\"q_proj\":4}: in ripstop all adapters have one"},
      {{{"bias", "all"}}, "trains biases (bias 'all')"},
      {{{"bias", "lora_only"}}, "trains biases (bias 'lora_only')"},
      {{{"lora_bias", true}}, "has lora_bias true: ripstop's adapters have no biases"},
      {{{"modules_to_save", {"lm_head"}}},
       "has modules_to_save [\"lm_head\"]: ripstop trains adapters alone"},
      {{{"layers_to_transform", {1, 2}}}, "has layers_to_transform [1,2]: in ripstop every layer"},
      {{{"layers_to_transform", 0}}, "has layers_to_transform 0: in ripstop every layer"},
      {{{"rank_pattern", {{"lm_head", 2}, {".*q_proj", 4}}}}, "has rank_pattern"},
      {{{"layer_replication", {{0, 2}}}}, "has layer_replication"},
      {{{"trainable_token_indices", {3}}}, "has trainable_token_indices [3]"},
      {{{"fan_in_fan_out", true}}, "has fan_in_fan_out true"},
      {{{"use_qalora", true}}, "has use_qalora true, which ripstop does not know"},
      {{{"alora_invocation_tokens", {1, 2}}},
       "has alora_invocation_tokens [1,2], which ripstop does not know"},
      {{{"of_2030", 1}},
       "has of_2030 1, which ripstop does not know: it may change what the adapters compute"},
      {{{"init_lora_weights", "pissa"}}, "has init_lora_weights \"pissa\", which may change the base"},
      {{{"init_lora_weights", "olora"}}, "which may change the base"},
      {{{"init_lora_weights", 3}}, "which may change the base"},
      {{{"peft_type", "IA3"}}, "has the peft_type 'IA3'; ripstop reads 'LORA'"},
      {{{"peft_type", nullptr}}, "peft_type"},
      {{{"task_type", "SEQ_CLS"}}, "has the task_type 'SEQ_CLS'"},
      {{{"r", 0}}, "'r' must be a whole number from 1"},
      {{{"r", 2.5}}, "'r' must be a whole number"},
      {{{"r", nullptr}}, "'r'"},
      {{{"lora_alpha", 0}}, "'lora_alpha' must be above 0, it is 0"},
      {{{"lora_alpha", -8}}, "'lora_alpha' must be above 0"},
      {{{"lora_alpha", "8"}}, "'lora_alpha' must be a number"},
      {{{"lora_dropout", 1}}, "'lora_dropout' must be at least 0 and below 1, it is 1"},
      {{{"lora_dropout", -0.5}}, "'lora_dropout' must be at least 0"},
      {{{"target_modules", nullptr}}, "target_modules"},
      {{{"target_modules", Json::array()}}, "'target_modules' has 0 members"},
      {{{"target_modules", {"q_proj", "lm_head"}}},
       "has adapters of \"lm_head\"; ripstop's are of q_proj, k_proj"},
      {{{"target_modules", {"q_proj", 3}}}, "has adapters of 3"},
      {{{"target_modules", ".*attn.*"}}, "has the pattern \".*attn.*\" as target_modules"},
      {{{"use_rslora", 1}}, "'use_rslora' must be true or false"},
      {{{"of\nlines", "a\nb"}}, "has of lines"},
  };
  for (const auto& [changes, what] : cases) {
    SCOPED_TRACE(changes.dump());
    const std::string found = what_of([&, &changes = changes] { peft_with(changes); }, ExitCode::kInputData);
    EXPECT_HAS(found, "DIR/adapter_config.json: ");
    EXPECT_HAS(found, what);
  }
  EXPECT_EQ(error_of([] { parse_peft_config("[1]", "x"); }).code(), ExitCode::kInputData);
  EXPECT_EQ(error_of([] { parse_peft_config("{", "x"); }).code(), ExitCode::kInputData);
  EXPECT_EQ(error_of([] { read_peft_config("/nowhere"); }).code(), ExitCode::kInputData);
}

TEST(PeftConfig, WhatIsWrittenIsReadBack) {
  for (const bool rslora : {false, true})
    for (const auto& targets : {kAttention, kAllTargets, kGateAlone})
      for (const double alpha : {16.0, 0.125, 1e6}) {
        const LoraConfig lora{
            .rank = 8, .alpha = alpha, .dropout = 0.05, .rslora = rslora, .targets = targets};
        const std::string text = peft_config_json(lora, "models/a \"b\"");
        EXPECT_EQ(parse_peft_config(text, "x"), lora);
        EXPECT_EQ(Json::parse(text)["base_model_name_or_path"], "models/a \"b\"");
      }
  const Json json = Json::parse(peft_config_json({.rank = 8, .alpha = 16}, ""));
  EXPECT_TRUE(json["base_model_name_or_path"].is_null());
  EXPECT_TRUE(json["lora_alpha"].is_number_integer());
  EXPECT_EQ(json["target_modules"], Json({"q_proj", "k_proj", "v_proj", "o_proj"}));
}

TEST(PeftConfig, LinesAreThoseOfAConfig) {
  EXPECT_EQ(lora_lines({.rank = 4, .alpha = 8, .rslora = true, .targets = {true}}),
            "rank = 4, alpha = 8, targets = [\"q_proj\"], rslora = true");
}

}  // namespace
}  // namespace ripstop
