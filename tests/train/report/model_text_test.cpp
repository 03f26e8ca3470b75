#include <gtest/gtest.h>

#include "tests/expect_has.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

TEST(ModelText, NamesThePartsBesideThoseOfLlama2) {
  const auto text_of = [](std::string_view preset) {
    ModelConfig model = find_model_preset(preset)->config;
    model.vocab_size = 50;
    return model_text(model) + ";";
  };
  EXPECT_EQ(text_of("llama2-7b"),
            "32 layers, hidden 4096, feed-forward 11008, 32 heads (32 key-value), 50 pieces;");
  EXPECT_HAS(text_of("qwen2.5-0.5b"), "14 heads (2 key-value), 50 pieces, tied, attention_bias qkv;");
  EXPECT_HAS(text_of("qwen3-0.6b"), " pieces, tied, head_dim 128, qk_norm true;");
  EXPECT_HAS(text_of("llama3.1-8b"),
             " pieces, rope_type llama3, rope_factor 8.0, rope_original_max_position_embeddings 8192;");
}

}  // namespace
}  // namespace ripstop
