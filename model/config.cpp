#include "model/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <type_traits>

#include "model/core/error.h"
#include "model/core/rounding.h"

namespace ripstop {
namespace {

template <class T>
void check_range(const char* key, T value, const ValueRange& range) {
  const auto number = static_cast<double>(value);  // NaN is in no range
  if (number >= range.least && number <= range.most && !(range.above_least && number == range.least)) return;
  if constexpr (std::is_same_v<T, double>)
    fail(ExitCode::kUsage, "{} must be {} {} and at most {}, got {}", key,
         range.above_least ? "above" : "at least", range.least, range.most, value);
  else
    fail(ExitCode::kUsage, "{} must be from {} to {}, got {}", key, range.least, range.most, value);
}

void check_at_most(const char* key, int64_t value, const char* other_key, int64_t other) {
  if (value > other)
    fail(ExitCode::kUsage, "{} must be from 1 to {}, got {} and {}", key, other_key, value, other);
}

void check_divides(const char* key, int64_t value, const char* divisor_key, int64_t divisor) {
  if (value % divisor != 0)
    fail(ExitCode::kUsage, "{} must be a multiple of {}, got {} and {}", key, divisor_key, value, divisor);
}

void check_heads(const ModelConfig& config) {
  constexpr int64_t kMostQueries = 1 << 20;
  if (config.head_dim != 0) {
    check_range("num_attention_heads", config.num_attention_heads,
                {1, static_cast<double>(kMostQueries / config.head_dim)});
  } else {
    // With more heads than hidden_size, a head would have size 0.
    check_at_most("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size);
    check_divides("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  }
  check_at_most("num_key_value_heads", config.num_key_value_heads, "num_attention_heads",
                config.num_attention_heads);
  check_divides("num_attention_heads", config.num_attention_heads, "num_key_value_heads",
                config.num_key_value_heads);
  // The checks above make head_size() valid.
  if (config.head_size() % 2 != 0)
    fail(ExitCode::kUsage, "{} must be even (rotary embedding turns pairs), got {}",
         config.head_dim != 0 ? "head_dim" : "hidden_size / num_attention_heads", config.head_size());
}

void check_rope(const ModelConfig& config) {
  const ModelConfig unset;
  if (config.rope_type == RopeType::kLinear && config.rope_factor == 1)
    fail(ExitCode::kUsage, "rope_type linear needs a rope_factor other than 1");
  if (config.rope_type == RopeType::kDefault && config.rope_factor != 1)
    fail(ExitCode::kUsage, "rope_factor is {}, which needs rope_type linear or llama3", config.rope_factor);
  if (config.rope_type == RopeType::kLlama3) {
    if (config.rope_original_max_position_embeddings == 0)
      fail(ExitCode::kUsage, "rope_type llama3 needs rope_original_max_position_embeddings");
    if (config.rope_low_freq_factor >= config.rope_high_freq_factor)
      fail(ExitCode::kUsage, "rope_low_freq_factor must be below rope_high_freq_factor, got {} and {}",
           config.rope_low_freq_factor, config.rope_high_freq_factor);
  } else if (config.rope_low_freq_factor != unset.rope_low_freq_factor ||
             config.rope_high_freq_factor != unset.rope_high_freq_factor ||
             config.rope_original_max_position_embeddings != 0) {
    fail(ExitCode::kUsage,
         "rope_low_freq_factor, rope_high_freq_factor and rope_original_max_position_embeddings need "
         "rope_type llama3, it is {}",
         to_string(config.rope_type));
  }
}

// Returns `config` with the rotary angles of LLaMA 3.1 and later, which stretch LLaMA 3's 8,192 positions.
constexpr ModelConfig for_longer_texts(ModelConfig config, double factor) {
  config.rope_type = RopeType::kLlama3;
  config.rope_factor = factor;
  config.rope_original_max_position_embeddings = 8192;
  return config;
}

}  // namespace

void validate(const ModelConfig& config) {
  for_each_field(config, [](const auto&... field) {
    if constexpr (sizeof...(field) == 3) check_range(field...);  // a number has a range
  });
  check_heads(config);
  check_rope(config);
}

void check_window(const ModelConfig& config, int64_t length) {
  if (config.sliding_window == 0 || length <= config.sliding_window) return;
  throw Error(
      ExitCode::kUsage,
      fmt::format("sequences of {} tokens exceed the model's sliding_window of {}, and attention to a "
                  "part of a sequence is not in this version",
                  length, config.sliding_window),
      fmt::format("lengths that work: 1 to {} (data.sequence_length)", config.sliding_window));
}

double inverse_frequency(const ModelConfig& config, int64_t i) {
  const double plain =
      std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_size()));
  if (config.rope_type == RopeType::kDefault) return plain;
  const double slow = plain / config.rope_factor;
  if (config.rope_type == RopeType::kLinear) return slow;
  const double turns =
      static_cast<double>(config.rope_original_max_position_embeddings) * plain / (2 * std::numbers::pi);
  const double low = config.rope_low_freq_factor, high = config.rope_high_freq_factor;
  return std::lerp(slow, plain, std::clamp((turns - low) / (high - low), 0.0, 1.0));
}

std::vector<int64_t> tensor_axis_sizes(const ModelConfig& config) {
  return divisors(std::gcd(config.num_attention_heads, config.num_key_value_heads));
}

void check_tensor_axis(const ModelConfig& config, int64_t size) {
  const std::vector<int64_t> sizes = tensor_axis_sizes(config);
  if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) return;
  throw Error(ExitCode::kResources,
              fmt::format("mesh.tensor {} does not divide {} query and {} key-value heads", size,
                          config.num_attention_heads, config.num_key_value_heads),
              fmt::format("sizes that work: {}", fmt::join(sizes, ", ")));
}

int64_t parameter_count(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size, queries = config.query_size(),
                key_values = config.key_value_size();
  const int64_t attention = 2 * (queries + key_values) * hidden;
  const int64_t feed_forward = 3 * hidden * config.intermediate_size;
  int64_t vectors = 2 * hidden;  // the norms
  if (config.qk_norm) vectors += 2 * config.head_size();
  if (config.attention_bias != AttentionBias::kNone) vectors += queries + 2 * key_values;
  if (config.attention_bias == AttentionBias::kQkvo) vectors += hidden;
  const int64_t tables = config.vocab_size * hidden * (config.tie_word_embeddings ? 1 : 2);
  return tables + config.num_hidden_layers * (attention + feed_forward + vectors) + hidden;
}

double multiplied_parameters(const ModelConfig& config) {
  const int64_t looked_up = config.tie_word_embeddings ? 0 : config.vocab_size * config.hidden_size;
  return static_cast<double>(parameter_count(config) - looked_up);
}

FlopsPerToken training_flops_per_token(const ModelConfig& config, int64_t sequence_length) {
  const double multiplied = multiplied_parameters(config);
  // In each layer, scores and weighted sum take 2 H D T multiply-adds forward and twice as many backward.
  const double attention = 12.0 * static_cast<double>(config.num_hidden_layers) *
                           static_cast<double>(config.query_size()) * static_cast<double>(sequence_length);
  return {6.0 * multiplied + 0.5 * attention, 6.0 * multiplied + attention};
}

FlopsPerToken recomputed_flops_per_token(const ModelConfig& config, int64_t sequence_length,
                                         Recompute recompute) {
  if (recompute == Recompute::kNone) return {};
  const auto hidden = static_cast<double>(config.hidden_size),
             layers = static_cast<double>(config.num_hidden_layers);
  // Gate and up are two products of C by F.
  double products = 4 * hidden * static_cast<double>(config.intermediate_size), attention = 0;
  if (recompute == Recompute::kFull) {
    const auto queries = static_cast<double>(config.query_size()),
               key_values = static_cast<double>(config.key_value_size());
    products += 4 * hidden * (queries + key_values);  // wq, wk, wv and wo
    attention = 4 * queries * static_cast<double>(sequence_length);
  }
  return {layers * (products + 0.5 * attention), layers * (products + attention)};
}

std::span<const ModelPreset> model_presets() {
  static constexpr ModelPreset presets[] = {
      {"debug", {64, 192, 2, 4, 2, 0, 512, 1e-5, 1e4, true}},
      {"15m", {288, 768, 6, 6, 6, 32000, 256, 1e-5, 1e4, true}},
      {"110m", {768, 2048, 12, 12, 12, 32000, 1024, 1e-5, 1e4, true}},
      {"smollm2-135m", {576, 1536, 30, 9, 3, 49152, 8192, 1e-5, 1e5, true}},
      {"qwen2.5-0.5b", {896, 4864, 24, 14, 2, 151936, 32768, 1e-6, 1e6, true, 0, 64, AttentionBias::kQkv}},
      {"qwen3-0.6b",
       {1024, 3072, 28, 16, 8, 151936, 40960, 1e-6, 1e6, true, 0, 128, AttentionBias::kNone, true}},
      {"tinyllama-1.1b", {2048, 5632, 22, 32, 4, 32000, 2048, 1e-5, 1e4, false}},
      {"llama3.2-1b", for_longer_texts({2048, 8192, 16, 32, 8, 128256, 131072, 1e-5, 5e5, true, 0, 64}, 32)},
      {"llama2-7b", {4096, 11008, 32, 32, 32, 32000, 4096, 1e-5, 1e4, false}},
      {"llama3.1-8b",
       for_longer_texts({4096, 14336, 32, 32, 8, 128256, 131072, 1e-5, 5e5, false, 0, 128}, 8)},
      {"llama2-13b", {5120, 13824, 40, 40, 40, 32000, 4096, 1e-5, 1e4, false}},
      {"llama2-70b", {8192, 28672, 80, 64, 8, 32000, 4096, 1e-5, 1e4, false}},
  };
  return presets;
}

const ModelPreset* find_model_preset(std::string_view name) {
  for (const ModelPreset& preset : model_presets())
    if (preset.name == name) return &preset;
  return nullptr;
}

}  // namespace ripstop
