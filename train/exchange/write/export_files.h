// The small files of an export that transformers reads beside weights and tokenizer.
#pragma once
#include <cstdint>
#include <string>

#include "model/config.h"
#include "train/config/run_config.h"
#include "train/exchange/write/export_layout.h"

namespace ripstop {

/// Ids of special tokens; -1 if no tokenizer says them.
struct SpecialIds {
  int32_t bos = -1, eos = -1;
};

/// config.json of a LlamaForCausalLM, for transformers 4 and 5. parse_pretrained_config reads back an equal
/// ModelConfig, but for an initializer_range of 0, which transformers does not know: it gets its value.
std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids);

/// generation_config.json. Padding is EOS: the model was never trained on another token for it.
std::string generation_config_json(const GenerationSection& generation, const SpecialIds& ids);

}  // namespace ripstop
