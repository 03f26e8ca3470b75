// Settings of text generation, with the names and meanings of Hugging Face's GenerationConfig.
#pragma once
#include <cstdint>
#include <vector>

namespace ripstop {

/// When a beam search ends although some beams are still running; num_beams texts must be finished.
enum class EarlyStopping {
  /// When the best running beam, scored at its present length, is no better than the worst finished text.
  kFalse,
  kTrue,   ///< when num_beams texts are finished
  kNever,  ///< like kFalse, but at the length that gives the beam the best score
};

struct GenerationSettings {
  int64_t num_beams = 1;                                 ///< 1: no beam search
  double length_penalty = 1.0;                           ///< for beam search
  EarlyStopping early_stopping = EarlyStopping::kFalse;  ///< for beam search
  int64_t no_repeat_ngram_size = 0;  ///< no n-gram of this many tokens occurs twice; 0: off
  int64_t min_new_tokens = 0;        ///< no end token before this many new tokens
  int64_t max_new_tokens = 64;
  bool do_sample = false;
  double temperature = 1.0;  ///< for sampling
  int64_t top_k = 0;         ///< for sampling; 0: off
  double top_p = 1.0;        ///< for sampling; 1: off
  int64_t seed = 1;          ///< for sampling
  /// Ids that end a text, besides the tokenizer's EOS; ascending. In a config with model.pretrained, empty
  /// means the model's own ids (read_model_ends).
  std::vector<int32_t> eos_token_id = {};

  static constexpr size_t kMostEndTokens = 400;  ///< so many always fit into a line of a config

  bool operator==(const GenerationSettings&) const = default;

  /// Whether the next token is always the most likely one, so that generation does not need all logits.
  bool takes_the_best() const {
    return num_beams == 1 && !do_sample && no_repeat_ngram_size == 0 && min_new_tokens == 0;
  }
  /// A copy with defaults for the settings that have no effect: those of beam search if num_beams is 1,
  /// those of sampling without do_sample.
  GenerationSettings that_count() const {
    const GenerationSettings usual;
    GenerationSettings s = *this;
    if (num_beams == 1) {
      s.length_penalty = usual.length_penalty;
      s.early_stopping = usual.early_stopping;
    }
    if (!do_sample) {
      s.temperature = usual.temperature;
      s.top_k = usual.top_k;
      s.top_p = usual.top_p;
      s.seed = usual.seed;
    }
    return s;
  }
};

}  // namespace ripstop
