#pragma once
#include <string>

#include "model/config.h"

namespace ripstop {

/// The sizes for people, then the parts that LLaMA 2 lacks, as keys of [model]: "30 layers, hidden 896,
/// feed-forward 4864, 14 heads (2 key-value), 151936 pieces, tied, attention_bias qkv". The sizes must be
/// valid.
std::string model_text(const ModelConfig& model);

}  // namespace ripstop
