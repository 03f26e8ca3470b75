// Makes directories of PEFT adapters. Tests can damage each part.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tests/train/exchange/pretrained_directory.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {

/// The model of PretrainedDirectory.
inline ModelConfig pretrained_directory_model() {
  return parse_pretrained_config(PretrainedDirectory().config.dump(), "config.json");
}

/// Adapters of rank 2 of q_proj, v_proj and down_proj for the model of PretrainedDirectory, with the config
/// keys of peft 0.21.
class PeftDirectory {
 public:
  PeftDirectory() {
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = "base_model.model.model.layers." + std::to_string(layer) + ".";
      add(at + "mlp.down_proj", 12, 8);
      add(at + "self_attn.q_proj", 8, 8);
      add(at + "self_attn.v_proj", 8, 4);
    }
    fill("F32");
  }

  void write() const {
    write_bytes(path() / "adapter_config.json", config.dump(1));
    write_bytes(path() / "adapter_model.safetensors", safetensors_bytes(tensors));
  }
  /// Gives every element its stored_value, in `dtype`.
  void fill(const std::string& dtype) {
    for (TensorToWrite& tensor : tensors) {
      tensor.dtype = dtype;
      tensor.values.clear();
      const int64_t elements = tensor.shape[0] * tensor.shape[1];
      for (int64_t i = 0; i < elements; ++i) tensor.values += bits_of(dtype, stored_value(tensor.name, i));
    }
  }
  TensorToWrite& tensor(const std::string& name) {
    for (TensorToWrite& tensor : tensors)
      if (tensor.name == name) return tensor;
    throw std::runtime_error("no tensor " + name);
  }
  const std::filesystem::path& path() const { return scratch_.path(); }

  static constexpr int64_t kRank = 2;
  nlohmann::ordered_json config = {{"alora_invocation_tokens", nullptr},
                                   {"alpha_pattern", nlohmann::ordered_json::object()},
                                   {"arrow_config", nullptr},
                                   {"auto_mapping", nullptr},
                                   {"base_model_name_or_path", "models/small"},
                                   {"bias", "none"},
                                   {"corda_config", nullptr},
                                   {"ensure_weight_tying", false},
                                   {"eva_config", nullptr},
                                   {"exclude_modules", nullptr},
                                   {"fan_in_fan_out", false},
                                   {"inference_mode", true},
                                   {"init_lora_weights", true},
                                   {"layer_replication", nullptr},
                                   {"layers_pattern", nullptr},
                                   {"layers_to_transform", nullptr},
                                   {"loftq_config", nlohmann::ordered_json::object()},
                                   {"lora_alpha", 8},
                                   {"lora_bias", false},
                                   {"lora_dropout", 0.05},
                                   {"megatron_config", nullptr},
                                   {"megatron_core", "megatron.core"},
                                   {"modules_to_save", nullptr},
                                   {"peft_type", "LORA"},
                                   {"peft_version", "0.21.2"},
                                   {"qalora_group_size", 16},
                                   {"r", kRank},
                                   {"rank_pattern", nlohmann::ordered_json::object()},
                                   {"revision", nullptr},
                                   {"target_modules", {"v_proj", "q_proj", "down_proj"}},
                                   {"target_parameters", nullptr},
                                   {"task_type", "CAUSAL_LM"},
                                   {"trainable_token_indices", nullptr},
                                   {"use_bdlora", nullptr},
                                   {"use_dora", false},
                                   {"use_qalora", false},
                                   {"use_rslora", false}};
  std::vector<TensorToWrite> tensors;

 private:
  void add(const std::string& name, int64_t columns, int64_t rows) {
    tensors.push_back({name + ".lora_A.weight", {kRank, columns}});
    tensors.push_back({name + ".lora_B.weight", {rows, kRank}});
  }

  ScratchDirectory scratch_;
};

}  // namespace ripstop
