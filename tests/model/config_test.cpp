#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "model/core/error.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

ModelConfig preset(std::string_view name) {
  const ModelPreset* found = find_model_preset(name);
  EXPECT_NE(found, nullptr) << name;
  return found->config;
}

// The text of the refusal, or "" if the config is accepted.
std::string refusal(const ModelConfig& config) {
  return what_of([&] { validate(config); }, ExitCode::kUsage);
}

TEST(ModelConfig, PresetsHaveThePublishedParameterCounts) {
  EXPECT_EQ(parameter_count(preset("15m")), 15'191'712);
  EXPECT_EQ(parameter_count(preset("110m")), 109'529'856);
  EXPECT_EQ(parameter_count(preset("smollm2-135m")), 134'515'008);
  EXPECT_EQ(parameter_count(preset("qwen2.5-0.5b")), 494'032'768);
  EXPECT_EQ(parameter_count(preset("qwen3-0.6b")), 596'049'920);
  EXPECT_EQ(parameter_count(preset("llama3.2-1b")), 1'235'814'400);
  EXPECT_EQ(parameter_count(preset("llama3.1-8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(preset("tinyllama-1.1b")), 1'100'048'384);
  EXPECT_EQ(parameter_count(preset("llama2-7b")), 6'738'415'616);
  EXPECT_EQ(parameter_count(preset("llama2-13b")), 13'015'864'320);
  EXPECT_EQ(parameter_count(preset("llama2-70b")), 68'976'648'192);
}

TEST(ModelConfig, EveryPresetIsValid) {
  for (ModelPreset entry : model_presets()) {
    if (entry.config.vocab_size == 0) entry.config.vocab_size = 512;
    EXPECT_EQ(refusal(entry.config), "") << entry.name;
  }
  EXPECT_EQ(find_model_preset("llama3-8b"), nullptr);
}

TEST(ModelConfig, ContextsAndHeads) {
  EXPECT_EQ(preset("15m").max_position_embeddings, 256);
  EXPECT_EQ(preset("110m").max_position_embeddings, 1024);
  EXPECT_EQ(preset("llama2-70b").num_key_value_heads, 8);
  EXPECT_EQ(preset("llama2-7b").head_size(), 128);
  EXPECT_TRUE(preset("15m").tie_word_embeddings);
  EXPECT_FALSE(preset("llama2-7b").tie_word_embeddings);
}

TEST(ModelConfig, TensorAxisKeepsHeadsWhole) {
  const ModelConfig config{.num_attention_heads = 12, .num_key_value_heads = 6};
  EXPECT_EQ(tensor_axis_sizes(config), (std::vector<int64_t>{1, 2, 3, 6}));
  for (const int64_t size : {1, 2, 3, 6}) EXPECT_NO_THROW(check_tensor_axis(config, size));
  for (const int64_t size : {0, 4, 12}) {  // 4 and 12 divide the query heads alone
    const Error error = error_of([&] { check_tensor_axis(config, size); });
    EXPECT_EQ(error.code(), ExitCode::kResources);
    EXPECT_EQ(error.what(),
              fmt::format("mesh.tensor {} does not divide 12 query and 6 key-value heads", size));
    EXPECT_EQ(error.hint(), "sizes that work: 1, 2, 3, 6");
  }
}

TEST(ModelConfig, FlopsOfLlama7bAreThePublishedOnes) {
  const FlopsPerToken flops = training_flops_per_token(preset("llama2-7b"), 4096);
  // 6.607e9 parameters that multiply; 32 layers of 4096 x 4096.
  EXPECT_DOUBLE_EQ(flops.full_attention, 6.0 * 6'607'343'616 + 12.0 * 32 * 4096 * 4096);
  EXPECT_DOUBLE_EQ(flops.causal, 6.0 * 6'607'343'616 + 6.0 * 32 * 4096 * 4096);
}

// A block's forward takes 4 C (C + K D) + 6 C F in products and 2 C T or 4 C T in attention.
TEST(ModelConfig, FlopsThatBackwardComputesAgain) {
  const auto again = [](Recompute recompute) {
    return recomputed_flops_per_token(preset("llama2-7b"), 2048, recompute);
  };
  EXPECT_EQ(again(Recompute::kNone).causal, 0);
  EXPECT_EQ(again(Recompute::kNone).full_attention, 0);
  const double gate_up = 32.0 * 4 * 4096 * 11008;
  EXPECT_DOUBLE_EQ(again(Recompute::kSelective).causal, gate_up);
  EXPECT_DOUBLE_EQ(again(Recompute::kSelective).full_attention, gate_up);
  EXPECT_DOUBLE_EQ(again(Recompute::kFull).causal, gate_up + 32.0 * 4096 * (4 * 8192 + 2 * 2048));
  EXPECT_DOUBLE_EQ(again(Recompute::kFull).full_attention, gate_up + 32.0 * 4096 * (4 * 8192 + 4 * 2048));
  // Grouped heads: wk and wv have fewer rows.
  const FlopsPerToken grouped = recomputed_flops_per_token(preset("llama2-70b"), 4096, Recompute::kFull);
  EXPECT_DOUBLE_EQ(grouped.causal, 80.0 * 8192 * (4 * 28672 + 4 * (8192 + 1024) + 2 * 4096));
}

// Attention is as wide as its heads, not as the residual stream.
TEST(ModelConfig, FlopsOfHeadsOfTheirOwnSize) {
  ModelConfig config = preset("15m");
  const FlopsPerToken before = training_flops_per_token(config, 256),
                      again = recomputed_flops_per_token(config, 256, Recompute::kFull);
  config.head_dim = 96;  // twice C / H
  const FlopsPerToken after = training_flops_per_token(config, 256);
  EXPECT_DOUBLE_EQ(after.causal - before.causal, 6.0 * (6 * 4 * 288 * 288) + 6.0 * 6 * 288 * 256);
  EXPECT_DOUBLE_EQ(recomputed_flops_per_token(config, 256, Recompute::kFull).causal - again.causal,
                   6.0 * 288 * (8 * 288 + 2 * 256));
}

TEST(ModelConfig, TiedTableCountsAsTheHead) {
  const FlopsPerToken flops = training_flops_per_token(preset("15m"), 256);
  EXPECT_DOUBLE_EQ(flops.causal, 6.0 * 15'191'712 + 6.0 * 6 * 288 * 256);
}

TEST(ModelConfig, ImpossibleValuesAreNamed) {
  const auto broken = [](auto change) {
    ModelConfig config = preset("15m");
    change(config);
    return refusal(config);
  };
  using C = ModelConfig;
  EXPECT_HAS(broken([](C& c) { c.hidden_size = 0; }), "hidden_size");
  EXPECT_HAS(broken([](C& c) { c.hidden_size = int64_t{1} << 40; }), "hidden_size");
  EXPECT_HAS(broken([](C& c) { c.intermediate_size = -1; }), "intermediate_size");
  EXPECT_HAS(broken([](C& c) { c.num_hidden_layers = 0; }), "num_hidden_layers");
  EXPECT_HAS(broken([](C& c) { c.num_attention_heads = 7; }), "multiple of num_attention_heads");
  EXPECT_HAS(broken([](C& c) { c.num_key_value_heads = 4; }), "num_key_value_heads");
  EXPECT_HAS(broken([](C& c) {
               c.num_attention_heads = 288;
               c.num_key_value_heads = 1;
             }),
             "even");
  EXPECT_HAS(broken([](C& c) { c.vocab_size = 0; }), "vocab_size");
  EXPECT_HAS(broken([](C& c) { c.max_position_embeddings = 0; }), "max_position");
  EXPECT_HAS(broken([](C& c) { c.rms_norm_eps = 0; }), "rms_norm_eps");
  EXPECT_HAS(broken([](C& c) { c.rope_theta = std::nan(""); }), "rope_theta");
  EXPECT_HAS(broken([](C& c) { c.initializer_range = std::numeric_limits<double>::infinity(); }),
             "initializer");
  EXPECT_EQ(broken([](C& c) { c.initializer_range = 0; }), "");
  EXPECT_HAS(broken([](C& c) { c.head_dim = 7; }), "head_dim must be even");
  EXPECT_HAS(broken([](C& c) { c.head_dim = 1 << 20; }), "num_attention_heads must be from 1 to 1");
  EXPECT_EQ(broken([](C& c) { c.head_dim = 10; }), "") << "the hidden size need not be H D";
  EXPECT_HAS(broken([](C& c) { c.sliding_window = -1; }), "sliding_window");
}

// A constant without an effect is a mistake: another rope_type was meant.
TEST(ModelConfig, ConstantsOfRopeFitItsType) {
  const auto of = [](RopeType type, double factor, double low, int64_t positions) {
    ModelConfig config = preset("15m");
    config.rope_type = type;
    config.rope_factor = factor;
    config.rope_low_freq_factor = low;
    config.rope_original_max_position_embeddings = positions;
    return refusal(config);
  };
  EXPECT_EQ(of(RopeType::kDefault, 1, 1, 0), "");
  EXPECT_EQ(of(RopeType::kLinear, 4, 1, 0), "");
  EXPECT_EQ(of(RopeType::kLlama3, 4, 2, 64), "");
  EXPECT_HAS(of(RopeType::kLinear, 1, 1, 0), "other than 1");
  EXPECT_HAS(of(RopeType::kDefault, 4, 1, 0), "needs rope_type linear or llama3");
  EXPECT_HAS(of(RopeType::kLinear, 4, 2, 0), "need rope_type llama3");
  EXPECT_HAS(of(RopeType::kLinear, 4, 1, 64), "need rope_type llama3");
  EXPECT_HAS(of(RopeType::kLlama3, 4, 1, 0), "rope_original_max_position_embeddings");
  EXPECT_HAS(of(RopeType::kLlama3, 4, 4, 64), "must be below");
  EXPECT_HAS(of(RopeType::kLlama3, 0, 1, 64), "rope_factor must be above 0");
}

TEST(ModelConfig, InverseFrequencies) {
  ModelConfig config = preset("llama3.2-1b");
  // 500,000^(-2 i / 64): 8,192 positions are 1,304, 2.8 and 0.013 turns of the pairs 0, 15 and 28.
  const auto plain = [](int64_t i) { return std::pow(5e5, -static_cast<double>(i) / 32); };
  EXPECT_DOUBLE_EQ(inverse_frequency(config, 0), 1);
  EXPECT_DOUBLE_EQ(inverse_frequency(config, 28), plain(28) / 32);
  const double turns = 8192 * plain(15) / (2 * std::acos(-1.0)), kept = (turns - 1) / 3;
  ASSERT_TRUE(turns > 1 && turns < 4) << turns;
  EXPECT_NEAR(inverse_frequency(config, 15), (1 - kept) * plain(15) / 32 + kept * plain(15), 1e-15);
  config.rope_type = RopeType::kLinear;
  EXPECT_DOUBLE_EQ(inverse_frequency(config, 3), plain(3) / 32);
  config.rope_type = RopeType::kDefault;
  EXPECT_DOUBLE_EQ(inverse_frequency(config, 3), plain(3));
}

TEST(ModelConfig, ASequenceFitsTheWindow) {
  ModelConfig config = preset("15m");
  check_window(config, 1 << 20);
  config.sliding_window = 32;
  check_window(config, 32);
  const Error error = error_of([&] { check_window(config, 33); }, ExitCode::kUsage);
  EXPECT_HAS(error.what(), "33 tokens exceed the model's sliding_window of 32");
  EXPECT_EQ(error.hint(), "lengths that work: 1 to 32 (data.sequence_length)");
}

TEST(ModelConfig, TheLargestSizesDoNotOverflow) {
  ModelConfig config = preset("llama2-70b");
  config.hidden_size = int64_t{1} << 20;
  config.intermediate_size = int64_t{1} << 22;
  config.num_hidden_layers = 1 << 12;
  config.vocab_size = 1 << 24;
  EXPECT_EQ(refusal(config), "");
  EXPECT_GT(parameter_count(config), int64_t{1} << 55);
}

}  // namespace
}  // namespace ripstop
