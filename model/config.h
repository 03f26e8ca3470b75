// The sizes of a LLaMA-2-style transformer.
//
// Letters used for shapes everywhere in ripstop:
//   B  sequences                T  positions of a sequence     N  rows, B * T
//   C  hidden size              H  query heads                 K  key-value heads
//   D  head size                F  feed-forward size           V  vocabulary size
//   L  layers (blocks)
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/core/number.h"
#include "model/core/words.h"
#include "model/recompute.h"

namespace ripstop {

/// The linear layers of attention that add a bias.
enum class AttentionBias : uint8_t { kNone, kQkv, kQkvo };
template <>
inline constexpr std::array<std::string_view, 3> kWords<AttentionBias> = {"none", "qkv", "qkvo"};

/// The scaling of frequencies of rotary embedding (see inverse_frequency).
enum class RopeType : uint8_t { kDefault, kLinear, kLlama3 };
template <>
inline constexpr std::array<std::string_view, 3> kWords<RopeType> = {"default", "linear", "llama3"};

/// The sizes and constants of a model, most of them named as in Hugging Face's config.json. A default of 0
/// means "must be set", unless the field's comment says otherwise.
struct ModelConfig {
  int64_t hidden_size = 0;              ///< C
  int64_t intermediate_size = 0;        ///< F
  int64_t num_hidden_layers = 0;        ///< L
  int64_t num_attention_heads = 0;      ///< H
  int64_t num_key_value_heads = 0;      ///< K; equals H in plain multi-head attention
  int64_t vocab_size = 0;               ///< V
  int64_t max_position_embeddings = 0;  ///< the largest T
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;  ///< the head reads the embedding's weight
  double initializer_range = 0.0;    ///< standard deviation of initial weights; 0: 1 / sqrt(hidden_size)
  int64_t head_dim = 0;              ///< D; 0: C / H
  AttentionBias attention_bias = AttentionBias::kNone;
  bool qk_norm = false;  ///< an RMSNorm of each head of queries and keys, before the rotation
  /// A position sees itself and sliding_window - 1 positions before it; 0: all before it (see check_window).
  int64_t sliding_window = 0;
  RopeType rope_type = RopeType::kDefault;
  // rope_factor is for `linear` and `llama3`, the next three are for `llama3` only (see inverse_frequency).
  double rope_factor = 1.0;
  double rope_low_freq_factor = 1.0;
  double rope_high_freq_factor = 4.0;
  int64_t rope_original_max_position_embeddings = 0;  ///< 0 unless `llama3`

  /// D. The sizes must be valid.
  int64_t head_size() const { return head_dim > 0 ? head_dim : hidden_size / num_attention_heads; }
  /// H D, the width of the queries. The sizes must be valid.
  int64_t query_size() const { return num_attention_heads * head_size(); }
  /// K D. The sizes must be valid.
  int64_t key_value_size() const { return num_key_value_heads * head_size(); }
  bool operator==(const ModelConfig&) const = default;
};

/// Visits each field of `config`, a ModelConfig that may be const: visit(name, value, range) for a number,
/// else visit(name, value). Each field is a key of [model]; manifests, config.json, `inspect` and the
/// comparison of configs between ranks use this order.
template <class Config, class Visit>
constexpr void for_each_field(Config&& config, Visit&& visit) {
  visit("hidden_size", config.hidden_size, ValueRange{1, 1 << 20});
  visit("intermediate_size", config.intermediate_size, ValueRange{1, 1 << 22});
  visit("num_hidden_layers", config.num_hidden_layers, ValueRange{1, 1 << 12});
  visit("num_attention_heads", config.num_attention_heads, ValueRange{1, 1 << 20});
  visit("num_key_value_heads", config.num_key_value_heads, ValueRange{1, 1 << 20});
  visit("vocab_size", config.vocab_size, ValueRange{1, 1 << 24});
  visit("max_position_embeddings", config.max_position_embeddings, ValueRange{1, 1 << 30});
  visit("rms_norm_eps", config.rms_norm_eps, ValueRange{0, 1, true});
  visit("rope_theta", config.rope_theta, ValueRange{0, 1e12, true});
  visit("tie_word_embeddings", config.tie_word_embeddings);
  visit("initializer_range", config.initializer_range, ValueRange{0, 10});
  visit("head_dim", config.head_dim, ValueRange{0, 1 << 20});
  visit("attention_bias", config.attention_bias);
  visit("qk_norm", config.qk_norm);
  visit("sliding_window", config.sliding_window, ValueRange{0, 1 << 30});
  visit("rope_type", config.rope_type);
  visit("rope_factor", config.rope_factor, ValueRange{0, 1e6, true});
  visit("rope_low_freq_factor", config.rope_low_freq_factor, ValueRange{0, 1e6, true});
  visit("rope_high_freq_factor", config.rope_high_freq_factor, ValueRange{0, 1e6, true});
  visit("rope_original_max_position_embeddings", config.rope_original_max_position_embeddings,
        ValueRange{0, 1 << 30});
}

/// Throws Error(kUsage) for the first impossible value, with its key in the message. Impossible values are:
/// - a number outside its range (for_each_field), or NaN;
/// - without head_dim, a num_attention_heads that does not divide hidden_size; with it, an H D above 2^20;
/// - a num_key_value_heads that does not divide num_attention_heads;
/// - an odd head size (rotary embedding rotates pairs);
/// - a rope_* constant that rope_type ignores, or needs and lacks; a low factor not below the high one.
void validate(const ModelConfig& config);

/// Throws Error(kUsage) if `length` exceeds the sliding window, because attention is computed without a
/// window. The hint has the lengths that work.
void check_window(const ModelConfig& config, int64_t length);

/// The angle in radians, at position 1, by which rotary embedding turns pair i of a head: f = theta^(-2i/D),
/// or f / rope_factor with `linear`. With `llama3`, the number of turns that f makes over
/// rope_original_max_position_embeddings positions decides: f / rope_factor below rope_low_freq_factor turns,
/// f above rope_high_freq_factor turns, and a linear interpolation between the two. Source: transformers,
/// modeling_rope_utils.py.
double inverse_frequency(const ModelConfig& config, int64_t i);

/// The sizes of the tensor axis that can cut the model, ascending: the common divisors of H and K, because
/// each rank computes whole heads. The model's sizes must be valid.
std::vector<int64_t> tensor_axis_sizes(const ModelConfig& config);

/// Throws Error(kResources) if a tensor axis of `size` ranks cannot cut the model. The hint lists the sizes
/// that can.
void check_tensor_axis(const ModelConfig& config, int64_t size);

/// Elements of all parameters; tied embeddings count once. The sizes must be valid.
int64_t parameter_count(const ModelConfig& config);

/// Parameter elements by which each token is multiplied: all except the table of an untied embedding, from
/// which rows are only copied. The sizes must be valid.
double multiplied_parameters(const ModelConfig& config);

/// Floating-point operations for one token; a multiply-add counts as two.
struct FlopsPerToken {
  double causal = 0;          ///< with half of attention's T x T products
  double full_attention = 0;  ///< with all of attention's T x T products
};

/// 6 P + 12 L H D T for full attention and 6 P + 6 L H D T for causal attention, forward and backward, where
/// P is multiplied_parameters and T is `sequence_length`. The sizes must be valid. Source of the former:
/// arXiv:2204.02311 (PaLM), appendix B.
FlopsPerToken training_flops_per_token(const ModelConfig& config, int64_t sequence_length);

/// Floating-point operations that backward repeats for one token in all blocks (see Recompute). MFU
/// does not count them. The sizes must be valid.
FlopsPerToken recomputed_flops_per_token(const ModelConfig& config, int64_t sequence_length,
                                         Recompute recompute);

/// A model with a name. Most are published.
struct ModelPreset {
  std::string_view name;
  ModelConfig config;  ///< vocab_size is 0 if the data set determines it
};

/// Returns the presets, smallest first.
std::span<const ModelPreset> model_presets();

/// Returns null if no preset has this name.
const ModelPreset* find_model_preset(std::string_view name);

}  // namespace ripstop
