// The model of tests of an export's small files: every size differs from LlamaConfig's default.
#pragma once
#include "model/config.h"

namespace ripstop {

inline ModelConfig exported_model() {
  return {.hidden_size = 64,
          .intermediate_size = 172,
          .num_hidden_layers = 3,
          .num_attention_heads = 8,
          .num_key_value_heads = 2,
          .vocab_size = 503,
          .max_position_embeddings = 96,
          .rms_norm_eps = 3e-6,
          .rope_theta = 500000.0,
          .tie_word_embeddings = true,
          .initializer_range = 0.01,
          .head_dim = 8};
}

}  // namespace ripstop
