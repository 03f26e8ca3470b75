#include "train/exchange/hugging_face/pretrained_model.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/train/exchange/exported_model.h"
#include "tests/train/exchange/pretrained_directory.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

ModelConfig parsed_with(const Json& changes) {
  Json config = PretrainedDirectory().config;
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return parse_pretrained_config(config.dump(), "DIR/config.json");
}

TEST(PretrainedConfig, HasTheSizes) {
  const ModelConfig model = parsed_with(Json::object());
  const ModelConfig expected{.hidden_size = 8,
                             .intermediate_size = 12,
                             .num_hidden_layers = 2,
                             .num_attention_heads = 2,
                             .num_key_value_heads = 1,
                             .vocab_size = 16,
                             .max_position_embeddings = 32,
                             .rms_norm_eps = 1e-5,
                             .rope_theta = 10000,
                             .tie_word_embeddings = false,
                             .initializer_range = 0.02,
                             .head_dim = 4};
  EXPECT_EQ(model, expected);
}

TEST(PretrainedConfig, DefaultsAreThoseOfLlamaConfig) {
  Json config = PretrainedDirectory().config;
  for (const char* key :
       {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "architectures", "hidden_act"})
    config.erase(key);
  const ModelConfig model = parse_pretrained_config(config.dump(), "x");
  EXPECT_EQ(model.num_key_value_heads, 2);
  EXPECT_EQ(model.max_position_embeddings, 2048);
  EXPECT_EQ(model.rms_norm_eps, 1e-6);
  EXPECT_FALSE(model.tie_word_embeddings);
}

// Versions of transformers write the same setting at different places.
TEST(PretrainedConfig, EachSpellingIsRead) {
  EXPECT_EQ(parsed_with({{"rope_theta", 5e5}}).rope_theta, 5e5);
  EXPECT_EQ(parsed_with({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}}).rope_theta,
            1e6);
  EXPECT_EQ(parsed_with({{"rope_scaling", nullptr}, {"dtype", "bfloat16"}}).rope_theta, 1e4);
  // Values of LlamaConfig in transformers 5.2.
  const nlohmann::json half_million{{"rope_type", "default"}, {"rope_theta", 5e5}}, none{{"type", "default"}};
  EXPECT_EQ(parsed_with({{"rope_scaling", half_million}}).rope_theta, 5e5);
  EXPECT_EQ(parsed_with({{"rope_scaling", half_million}, {"rope_theta", 7e5}}).rope_theta, 5e5);
  EXPECT_EQ(parsed_with({{"rope_parameters", half_million}, {"rope_theta", 7e5}}).rope_theta, 5e5);
  EXPECT_EQ(parsed_with({{"rope_scaling", half_million}, {"rope_parameters", half_million}}).rope_theta, 5e5);
  EXPECT_EQ(
      parsed_with({{"rope_scaling", nlohmann::json::object()}, {"rope_parameters", half_million}}).rope_theta,
      5e5);
  EXPECT_EQ(parsed_with({{"rope_scaling", none}, {"rope_theta", 7e5}}).rope_theta, 7e5);
  EXPECT_EQ(parsed_with({{"rope_scaling", {{"type", "default"}}}}).rope_theta, 1e4);
  EXPECT_EQ(parsed_with({{"head_dim", 4}, {"sliding_window", nullptr}}).head_size(), 4);
  EXPECT_EQ(parsed_with({{"head_dim", 6}}).head_dim, 6);
  EXPECT_EQ(parsed_with({{"sliding_window", 4096}}).head_size(), 4);
  EXPECT_EQ(parsed_with({{"sliding_window", 4}, {"use_sliding_window", false}}).head_size(), 4);
  EXPECT_TRUE(parsed_with({{"tie_word_embeddings", true}}).tie_word_embeddings);
}

// A value that changes nothing is no reason to refuse a model.
TEST(PretrainedConfig, OtherWordsForTheSameAreRead) {
  EXPECT_EQ(parsed_with({{"architectures", {"LLaMAForCausalLM"}}}), parsed_with({}));
  EXPECT_EQ(parsed_with({{"hidden_act", "swish"}}), parsed_with({}));
  EXPECT_EQ(parsed_with({{"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}}}), parsed_with({}));
}

TEST(PretrainedConfig, TheOriginalPositionsOfLlama3MayStandOutsideOrBeAbsent) {
  Json llama3 = {
      {"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  const auto original = [](const Json& changes) {
    return parsed_with(changes).rope_original_max_position_embeddings;
  };
  EXPECT_EQ(original({{"rope_scaling", llama3}, {"max_position_embeddings", 64}}), 64);
  EXPECT_EQ(original({{"rope_scaling", llama3}, {"original_max_position_embeddings", 16}}), 16);
  llama3["original_max_position_embeddings"] = 8;
  EXPECT_EQ(original({{"rope_scaling", llama3}}), 8);
}

TEST(PretrainedConfig, WhatIsNotComputedIsRefused) {
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8}};
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"architectures", {"MistralForCausalLM"}}}, "of \"MistralForCausalLM\" with the model_type 'llama'"},
      {{{"architectures", {7}}}, "is of 7"},
      {{{"architectures", Json::array()}}, "'architectures' has 0 members"},
      {{{"model_type", "gemma"}}, "'gemma'; ripstop reads llama, mistral, qwen2, qwen3"},
      {{{"model_type", 5}}, "'model_type' must be a text"},
      {{{"hidden_act", "gelu"}}, "'gelu'"},
      {{{"attention_bias", 1}}, "'attention_bias' must be true or false"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}}, "layers of \"sliding_attention\""},
      {{{"mlp_bias", true}}, "has mlp_bias"},
      {{{"mlp_bias", "no"}}, "'mlp_bias' must be true or false"},
      {{{"quantization_config", {{"bits", 4}}}}, "quantized"},
      {{{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}}, "has no 'low_freq_factor'"},
      {{{"rope_scaling", {{"type", "linear"}}}}, "has no 'factor'"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"mrope_section", {1}}}}}, "'mrope_section'"},
      {{{"original_max_position_embeddings", 16}, {"rope_scaling", llama3}}, "two values of original_max"},
      {{{"rope_scaling", llama3}, {"rope_parameters", {{"type", "linear"}, {"factor", 8.0}}}},
       "two values of rope_type"},
      {{{"rope_scaling", {{"type", "dynamic"}, {"factor", 1.0}}}}, "'dynamic'"},
      {{{"rope_scaling", {{"factor", 2.0}}}}, "scales its rotary angles by 2"},
      {{{"rope_scaling", 2}}, "no object"},
      {{{"rope_scaling", {{"type", "default"}}}, {"rope_parameters", {{"rope_theta", 5e5}}}},
       "two values of rope_theta, 10000.0 by rope_scaling and 500000.0 by rope_parameters"},
      {{{"rope_parameters", {{"rope_type", "yarn"}}}}, "'yarn'"},
      {{{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, "partial_rotary_factor"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
      {{{"sliding_window", 16}}, "sliding_window of 16"},
      {{{"head_dim", 5}}, "head_dim must be even"},
      {{{"hidden_size", 9}}, "impossible model"},
      {{{"hidden_size", 0}}, "'hidden_size' must be a whole number"},
      {{{"hidden_size", "8"}}, "'hidden_size' must be a whole number"},
      {{{"hidden_size", 8.5}}, "'hidden_size' must be a whole number"},
      {{{"hidden_size", 9223372036854775808u}}, "'hidden_size' must be a whole number"},
      {{{"vocab_size", -1}}, "'vocab_size' must be a whole number"},
      {{{"num_attention_heads", 3}}, "impossible model"},
      {{{"num_key_value_heads", 3}}, "impossible model"},
      {{{"rope_theta", "1e4"}}, "'rope_theta' must be a number"},
      {{{"rms_norm_eps", -1}}, "impossible model"},
  };
  for (const auto& [changes, what] : cases) {
    SCOPED_TRACE(changes.dump());
    const std::string found = what_of([&changes = changes] { parsed_with(changes); }, ExitCode::kInputData);
    EXPECT_HAS(found, what);
    EXPECT_HAS(found, "DIR/config.json");
  }
  for (const char* text : {"", "{", "[1]", "null", "{\"hidden_size\": NaN}", "{\"a\": 1, \"a\": 2}", "{}"})
    EXPECT_EQ(error_of([&] { parse_pretrained_config(text, "x"); }).code(), ExitCode::kInputData) << text;
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "vocab_size", "model_type"}) {
    Json config = PretrainedDirectory().config;
    config.erase(key);
    EXPECT_HAS(error_of([&] { parse_pretrained_config(config.dump(), "x"); }).what(),
               "has no '" + std::string(key) + "'");
  }
}

TEST(PretrainedConfig, WhatIsWrittenIsReadBackEqual) {
  const std::string text =
      pretrained_config_json(exported_model(), ExportDType::kBFloat16, {.bos = 1, .eos = 2});
  EXPECT_EQ(parse_pretrained_config(text, "config.json"), exported_model());
  const auto json = nlohmann::json::parse(text);
  // The spellings of transformers 4 and 5.
  EXPECT_EQ(json["rope_theta"], 500000.0);
  EXPECT_EQ(json["rope_parameters"]["rope_theta"], 500000.0);
  EXPECT_EQ(json["dtype"], "bfloat16");
  EXPECT_EQ(json["torch_dtype"], "bfloat16");
  EXPECT_EQ(json["bos_token_id"], 1);
  EXPECT_EQ(json["eos_token_id"], 2);
}

/// A config.json with the sizes of PretrainedDirectory, of another architecture.
Json config_of(const char* architecture, const char* type, const Json& changes = Json::object()) {
  Json config = PretrainedDirectory().config;
  config.update({{"architectures", {architecture}}, {"model_type", type}});
  config.update(changes);
  return config;
}

ModelConfig parsed(const Json& config) {
  return parse_pretrained_config(config.dump(), "DIR/config.json");
}

TEST(PretrainedConfig, EachFamilyHasWhatTransformersComputes) {
  EXPECT_EQ(parsed_with({{"attention_bias", true}}).attention_bias, AttentionBias::kQkvo);

  const ModelConfig mistral = parsed(config_of("MistralForCausalLM", "mistral"));
  EXPECT_EQ(mistral.sliding_window, 4096) << "an absent key is the default of MistralConfig";
  EXPECT_EQ(parsed(config_of("MistralForCausalLM", "mistral", {{"sliding_window", 7}})).sliding_window, 7);
  EXPECT_EQ(parsed(config_of("MistralForCausalLM", "mistral", {{"sliding_window", nullptr}})).sliding_window,
            0);
  EXPECT_EQ(parsed(config_of("MistralForCausalLM", "mistral", {{"attention_bias", true}})).attention_bias,
            AttentionBias::kNone);

  const ModelConfig qwen2 = parsed(config_of("Qwen2ForCausalLM", "qwen2", {{"sliding_window", 4}}));
  EXPECT_EQ(qwen2.attention_bias, AttentionBias::kQkv);
  EXPECT_EQ(qwen2.sliding_window, 0) << "use_sliding_window is absent";
  EXPECT_FALSE(qwen2.qk_norm);

  const ModelConfig qwen3 = parsed(config_of("Qwen3ForCausalLM", "qwen3"));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 128) << "the default of Qwen3Config";
  EXPECT_EQ(qwen3.attention_bias, AttentionBias::kNone);
  EXPECT_EQ(parsed(config_of("Qwen3ForCausalLM", "qwen3", {{"attention_bias", true}})).attention_bias,
            AttentionBias::kQkvo);

  Json windows =
      config_of("Qwen2ForCausalLM", "qwen2", {{"sliding_window", 4}, {"use_sliding_window", true}});
  EXPECT_EQ(parsed(windows).sliding_window, 0) << "only layers from the 28th on would have it";
  windows["max_window_layers"] = 1;
  EXPECT_HAS(error_of([&] { parsed(windows); }).what(), "has a sliding_window of 4 positions");
  windows["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(parsed(windows).sliding_window, 0);
  Json no_heads = config_of("Qwen2ForCausalLM", "qwen2");
  no_heads.erase("num_key_value_heads");
  EXPECT_HAS(error_of([&] { parsed(no_heads); }).what(), "got 32 and 2") << "32 is Qwen2Config's default";
  no_heads["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parsed(no_heads).num_key_value_heads, 2);
}

/// exported_model() with one change, which an export and an import must keep.
template <class Change>
ModelConfig written_and_read(const char* architecture, const Change& change) {
  ModelConfig model = exported_model();
  change(model);
  const std::string text = pretrained_config_json(model, ExportDType::kFloat32, {});
  EXPECT_EQ(nlohmann::json::parse(text)["architectures"][0], architecture);
  EXPECT_EQ(parse_pretrained_config(text, "config.json"), model) << text;
  return model;
}

TEST(PretrainedConfig, ExportsHaveTheArchitectureOfTheModel) {
  written_and_read("LlamaForCausalLM", [](ModelConfig& m) { m.attention_bias = AttentionBias::kQkvo; });
  written_and_read("LlamaForCausalLM", [](ModelConfig& m) { m.head_dim = 24; });
  written_and_read("MistralForCausalLM", [](ModelConfig& m) { m.sliding_window = 48; });
  written_and_read("MistralForCausalLM", [](ModelConfig& m) { m.hidden_size = 68, m.head_dim = 24; });
  written_and_read("Qwen2ForCausalLM", [](ModelConfig& m) { m.attention_bias = AttentionBias::kQkv; });
  written_and_read("Qwen3ForCausalLM", [](ModelConfig& m) { m.qk_norm = true, m.head_dim = 128; });
  written_and_read("Qwen3ForCausalLM",
                   [](ModelConfig& m) { m.qk_norm = true, m.attention_bias = AttentionBias::kQkvo; });
  const ModelConfig linear = written_and_read(
      "LlamaForCausalLM", [](ModelConfig& m) { m.rope_type = RopeType::kLinear, m.rope_factor = 4; });
  const auto json = nlohmann::json::parse(pretrained_config_json(linear, ExportDType::kFloat32, {}));
  // transformers 4 reads the first and rope_theta beside it, transformers 5 the second.
  EXPECT_EQ(json["rope_scaling"], (nlohmann::json{{"rope_type", "linear"}, {"factor", 4.0}}));
  EXPECT_EQ(json["rope_parameters"],
            (nlohmann::json{{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 500000.0}}));
  written_and_read("LlamaForCausalLM", [](ModelConfig& m) {
    m.rope_type = RopeType::kLlama3, m.rope_factor = 8, m.rope_low_freq_factor = 1.5,
    m.rope_high_freq_factor = 3, m.rope_original_max_position_embeddings = 48;
  });
}

TEST(PretrainedConfig, AModelThatNoArchitectureDescribesIsRefused) {
  ModelConfig model = exported_model();
  model.attention_bias = AttentionBias::kQkv;
  model.sliding_window = 48;
  expect_error([&] { pretrained_architecture(model); }, ExitCode::kUsage,
               "attention_bias qkv, qk_norm false and sliding_window 48",
               "Qwen2ForCausalLM with attention_bias qkv; Qwen3ForCausalLM with attention_bias none "
               "or qkvo, qk_norm");
}

TEST(PretrainedConfig, WithoutATokenizerNoIdIsWritten) {
  const auto config =
      nlohmann::json::parse(pretrained_config_json(exported_model(), ExportDType::kFloat32, {}));
  EXPECT_TRUE(config["bos_token_id"].is_null() && config["eos_token_id"].is_null());
}

}  // namespace
}  // namespace ripstop
