// How a text is continued. The names, and what they mean, are those of Hugging Face's GenerationConfig.
#pragma once
#include <cstdint>

namespace ripstop {

/// When a beam search ends although some of its beams go on.
enum class EarlyStopping {
  kFalse,  ///< when the best running beam, at its present length, scores no better than the worst kept text
  kTrue,   ///< when num_beams texts have ended
  kNever,  ///< like kFalse, but at the length at which the running beam would score best
};

struct GenerationSettings {
  int64_t num_beams = 1;                                 ///< 1: no search
  double length_penalty = 1.0;                           ///< for a search
  EarlyStopping early_stopping = EarlyStopping::kFalse;  ///< for a search
  int64_t no_repeat_ngram_size = 0;                      ///< 0: off
  int64_t min_new_tokens = 0;                            ///< the end token cannot be among the first so many
  int64_t max_new_tokens = 64;
  bool do_sample = false;
  double temperature = 1.0;  ///< for sampling
  int64_t top_k = 0;         ///< for sampling; 0: off
  double top_p = 1.0;        ///< for sampling; 1: off
  int64_t seed = 1;          ///< for sampling

  bool operator==(const GenerationSettings&) const = default;

  /// Whether the most likely token follows, whatever came before. Else all logits are needed.
  bool takes_the_best() const {
    return num_beams == 1 && !do_sample && no_repeat_ngram_size == 0 && min_new_tokens == 0;
  }
  /// Settings that give the same texts, with the default for each setting that is ignored: those of a search
  /// without beams, those of sampling without do_sample.
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
