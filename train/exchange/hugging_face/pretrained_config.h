// The config.json of a Hugging Face model, as far as ripstop's model has it.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "model/config.h"

namespace ripstop {

/// The sizes in `text`, a config.json that messages call `name`. What is absent has the default of Hugging
/// Face's LlamaConfig, except the sizes of the weights, which must be there. Throws Error(kInputData) with
/// the key and what it says, if the model is another than LlamaForCausalLM or computes what ripstop does not:
/// biases, another activation, scaled rotary angles, a head size other than hidden_size / heads, a sliding
/// window that is shorter than the context, quantized weights.
/// Source: transformers, models/llama/configuration_llama.py.
ModelConfig parse_pretrained_config(std::string_view text, const std::string& name);

/// As above, of DIRECTORY/config.json.
ModelConfig read_pretrained_config(const std::filesystem::path& directory);

}  // namespace ripstop
