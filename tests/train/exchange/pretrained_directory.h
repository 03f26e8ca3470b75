// Makes model directories of Hugging Face, tensor by tensor. Tests can damage each part.
#pragma once
#include <bit>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"

namespace ripstop {

/// One tensor of a file to be written.
struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  std::string values = {};  ///< its bytes; empty: zeros

  int64_t bytes() const {
    int64_t bytes = dtype == "F32" ? 4 : dtype == "F64" || dtype == "I64" ? 8 : 2;
    for (const int64_t size : shape) bytes *= size;
    return bytes;
  }
};

/// The bytes of a safetensors file with the given header and `data_bytes` zeros.
inline std::string safetensors_bytes(std::string_view header, int64_t data_bytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  bytes += header;
  bytes.resize(bytes.size() + static_cast<size_t>(data_bytes), '\0');
  return bytes;
}

inline std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t end = 0;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + tensor.bytes()}}};
    end += tensor.bytes();
  }
  std::string bytes = safetensors_bytes(header.dump(), end);
  auto at = static_cast<size_t>(std::ssize(bytes) - end);
  for (const TensorToWrite& tensor : tensors) {
    bytes.replace(at, tensor.values.size(), tensor.values);
    at += static_cast<size_t>(tensor.bytes());
  }
  return bytes;
}

/// The value that fill() gives to an element: a multiple of 1/64 below 2, exact in F32, F16 and BF16.
inline float stored_value(const std::string& huggingface_name, int64_t element) {
  const auto name = static_cast<int64_t>(std::hash<std::string>{}(huggingface_name) % 97);
  return static_cast<float>((element * 31 + name * 17) % 251 - 125) / 64.0F;
}

/// The bits of `value` in `dtype`; `value` must be exact in it.
inline std::string bits_of(const std::string& dtype, float value) {
  const auto wide = std::bit_cast<uint32_t>(value);
  uint32_t bits = dtype == "F32" ? wide : wide >> 16;
  if (dtype == "F16" && value == 0) bits = 0;
  if (dtype == "F16" && value != 0)
    bits = (wide >> 16 & 0x8000u) | (((wide >> 23 & 0xffu) - 112u) << 10) | (wide >> 13 & 0x3ffu);
  return std::string(reinterpret_cast<const char*>(&bits), dtype == "F32" ? 4 : 2);
}

/// A model of 2 layers: hidden 8, feed-forward 12, 2 heads and 1 key-value head, 16 pieces.
class PretrainedDirectory {
 public:
  PretrainedDirectory() {
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      tensors.push_back({name, std::move(shape)});
    };
    add("model.embed_tokens.weight", {16, 8});
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      add(at + "input_layernorm.weight", {8});
      add(at + "post_attention_layernorm.weight", {8});
      for (const char* name : {"q_proj", "o_proj"}) add(at + "self_attn." + name + ".weight", {8, 8});
      for (const char* name : {"k_proj", "v_proj"}) add(at + "self_attn." + name + ".weight", {4, 8});
      for (const char* name : {"gate_proj", "up_proj"}) add(at + "mlp." + name + ".weight", {12, 8});
      add(at + "mlp.down_proj.weight", {8, 12});
    }
    add("model.norm.weight", {8});
    add("lm_head.weight", {16, 8});
  }

  /// Writes config.json and one file.
  void write() const {
    write_config();
    write_bytes(path() / "model.safetensors", safetensors_bytes(tensors));
  }
  void write_config() const { write_bytes(path() / "config.json", config.dump(1)); }
  /// Writes config.json, and two files with their index.
  void write_sharded() const {
    write_config();
    const auto middle = tensors.begin() + std::ssize(tensors) / 2;
    nlohmann::ordered_json index = {{"metadata", {{"total_size", 0}}}};
    const auto shard = [&](const std::string& name, auto begin, auto end) {
      write_bytes(path() / name, safetensors_bytes(std::vector<TensorToWrite>(begin, end)));
      for (auto tensor = begin; tensor != end; ++tensor) index["weight_map"][tensor->name] = name;
    };
    shard("model-00001-of-00002.safetensors", tensors.begin(), middle);
    shard("model-00002-of-00002.safetensors", middle, tensors.end());
    write_bytes(path() / "model.safetensors.index.json", index.dump());
  }

  /// Changes the sizes of vocabulary and context. Call fill() afterwards.
  void resize(int64_t vocabulary, int64_t positions) {
    config["vocab_size"] = vocabulary;
    config["max_position_embeddings"] = positions;
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
      tensor(name).shape[0] = vocabulary;
  }
  /// Gives every element its stored_value, in `dtype`.
  void fill(const std::string& dtype) {
    for (TensorToWrite& tensor : tensors) {
      tensor.dtype = dtype;
      tensor.values.clear();
      const int64_t elements = tensor.bytes() / (dtype == "F32" ? 4 : 2);
      for (int64_t i = 0; i < elements; ++i) tensor.values += bits_of(dtype, stored_value(tensor.name, i));
    }
  }
  TensorToWrite& tensor(const std::string& name) {
    for (TensorToWrite& tensor : tensors)
      if (tensor.name == name) return tensor;
    throw std::runtime_error("no tensor " + name);
  }
  void erase(const std::string& name) {
    std::erase_if(tensors, [&](const TensorToWrite& tensor) { return tensor.name == name; });
  }
  const std::filesystem::path& path() const { return scratch_.path(); }

  nlohmann::ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"model_type", "llama"},
                                   {"hidden_size", 8},
                                   {"intermediate_size", 12},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 2},
                                   {"num_key_value_heads", 1},
                                   {"vocab_size", 16},
                                   {"max_position_embeddings", 32},
                                   {"rms_norm_eps", 1e-5},
                                   {"hidden_act", "silu"},
                                   {"torch_dtype", "float32"}};
  std::vector<TensorToWrite> tensors;

 private:
  ScratchDirectory scratch_;
};

}  // namespace ripstop
