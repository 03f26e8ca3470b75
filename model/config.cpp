#include "model/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/core/error.h"
#include "model/core/rounding.h"

namespace ripstop {
namespace {

void check_size(const char* key, int64_t value, int64_t largest) {
  if (value < 1 || value > largest)
    fail(ExitCode::kUsage, "{} must be from 1 to {}, got {}", key, largest, value);
}

void check_at_most(const char* key, int64_t value, const char* other_key, int64_t other) {
  if (value < 1 || value > other)
    fail(ExitCode::kUsage, "{} must be from 1 to {}, got {} and {}", key, other_key, value, other);
}

void check_divides(const char* key, int64_t value, const char* divisor_key, int64_t divisor) {
  if (value % divisor != 0)
    fail(ExitCode::kUsage, "{} must be a multiple of {}, got {} and {}", key, divisor_key, value, divisor);
}

void check_constant(const char* key, double value, bool zero_is_valid, double largest) {
  if (!std::isfinite(value) || value < 0 || (value == 0 && !zero_is_valid) || value > largest)
    fail(ExitCode::kUsage, "{} must be {} 0 and at most {}, got {}", key,
         zero_is_valid ? "at least" : "above", largest, value);
}

}  // namespace

void validate(const ModelConfig& config) {
  // Within these bounds every product of sizes, in bytes too, fits into 64 bits.
  check_size("hidden_size", config.hidden_size, 1 << 20);
  check_size("intermediate_size", config.intermediate_size, 1 << 22);
  check_size("num_hidden_layers", config.num_hidden_layers, 1 << 12);
  // With more heads than hidden_size, a head would have size 0.
  check_at_most("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size);
  check_at_most("num_key_value_heads", config.num_key_value_heads, "num_attention_heads",
                config.num_attention_heads);
  check_size("vocab_size", config.vocab_size, 1 << 24);
  check_size("max_position_embeddings", config.max_position_embeddings, 1 << 30);
  check_divides("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  check_divides("num_attention_heads", config.num_attention_heads, "num_key_value_heads",
                config.num_key_value_heads);
  // head_size() needs the divisions checked above.
  if (config.head_size() % 2 != 0)
    fail(ExitCode::kUsage,
         "hidden_size / num_attention_heads must be even (rotary embedding turns pairs), got {}",
         config.head_size());
  check_constant("rms_norm_eps", config.rms_norm_eps, false, 1.0);
  check_constant("rope_theta", config.rope_theta, false, 1e12);
  check_constant("initializer_range", config.initializer_range, true, 10.0);
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
  const int64_t hidden = config.hidden_size;
  const int64_t key_value_rows = config.num_key_value_heads * config.head_size();
  const int64_t attention = 2 * (hidden + key_value_rows) * hidden;
  const int64_t feed_forward = 3 * hidden * config.intermediate_size;
  int64_t vectors = 2 * hidden;  // the norms
  if (config.qk_norm) vectors += 2 * config.head_size();
  if (config.attention_bias != AttentionBias::kNone) vectors += hidden + 2 * key_value_rows;
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
  // In each layer, scores and weighted sum take 2 C T multiply-adds forward and twice as many backward.
  const double attention = 12.0 * static_cast<double>(config.num_hidden_layers) *
                           static_cast<double>(config.hidden_size) * static_cast<double>(sequence_length);
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
    const auto key_values = static_cast<double>(config.num_key_value_heads * config.head_size());
    products += 4 * hidden * (hidden + key_values);  // wq, wk, wv and wo
    attention = 4 * hidden * static_cast<double>(sequence_length);
  }
  return {layers * (products + 0.5 * attention), layers * (products + attention)};
}

std::span<const ModelPreset> model_presets() {
  static constexpr ModelPreset presets[] = {
      {"debug", {64, 192, 2, 4, 2, 0, 512, 1e-5, 1e4, true}},
      {"15m", {288, 768, 6, 6, 6, 32000, 256, 1e-5, 1e4, true}},
      {"110m", {768, 2048, 12, 12, 12, 32000, 1024, 1e-5, 1e4, true}},
      {"tinyllama-1.1b", {2048, 5632, 22, 32, 4, 32000, 2048, 1e-5, 1e4, false}},
      {"llama2-7b", {4096, 11008, 32, 32, 32, 32000, 4096, 1e-5, 1e4, false}},
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
