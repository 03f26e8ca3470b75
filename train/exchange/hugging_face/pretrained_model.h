// A directory with a model as Hugging Face stores it: where the bytes of each of ripstop's parameters lie.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/files/file.h"
#include "model/config.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {

/// A parameter's tensor: F32, F16 or BF16, in the shape that ripstop's model has.
struct PretrainedTensor {
  size_t file = 0;  ///< in PretrainedModel::files
  StoredTensor stored;
};

/// An open model. Its weights are not read yet.
struct PretrainedModel {
  ModelConfig config;
  std::vector<InputFile> files;
  /// By ripstop's name. Query and key rows are in Hugging Face's order (pretrained_row).
  std::map<std::string, PretrainedTensor> tensors;
  /// If embeddings are tied and the files have the table twice: the second one. It must equal the first.
  std::vector<PretrainedTensor> tied_copies;
  /// Hugging Face's names of tensors that nothing needs: rotary angles, which follow from the config.
  std::vector<std::string> ignored;

  int64_t bytes() const;
};

/// Whether `directory` holds a model of Hugging Face: it has a config.json and is no checkpoint of ripstop.
bool is_pretrained_model(const std::filesystem::path& directory);

/// Opens the model in `directory`: its config.json, and model.safetensors or the files of
/// model.safetensors.index.json. Reads the headers alone. Not collective. Throws Error(kInputData) as
/// parse_pretrained_config and read_safetensors_header do, and if a tensor is missing, in no or two files,
/// unknown, or of another shape or dtype; with a hint if there are only weights of PyTorch (.bin, .pth).
PretrainedModel open_pretrained_model(const std::filesystem::path& directory);

/// Hugging Face's name of ripstop's parameter `name`: "model.layers.3.self_attn.q_proj.weight" of
/// "layers.3.attention.wq.weight".
std::string pretrained_name(const std::string& name);

/// Whether the rows of ripstop's parameter `name` have another order there (pretrained_row): wq and wk, and b
/// of their adapters, whose rows are theirs.
bool has_turned_rows(const std::string& name);

/// The row of Hugging Face's tensor that holds row `row` of ripstop's wq or wk. ripstop turns neighbours by
/// one angle, as LLaMA does: elements 2 i and 2 i + 1 of a head. Hugging Face turns i and i + head_size / 2.
/// Source: transformers, models/llama/convert_llama_weights_to_hf.py, permute().
int64_t pretrained_row(int64_t row, int64_t head_size);

}  // namespace ripstop
