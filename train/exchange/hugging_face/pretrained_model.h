// A model in a directory of Hugging Face: its config.json, and where the bytes of each of ripstop's
// parameters lie. The bytes are read into the layout of ripstop's units, and hashed: the files have no hashes
// of their own.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"
#include "model/config.h"
#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "parallel/unit_layout.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {

/// Parses `text`, a config.json that messages call `name`. An absent key has the default of Hugging Face's
/// LlamaConfig, except that the sizes of the weights must be there. Throws Error(kInputData), with the key
/// and its value, if the model is no LlamaForCausalLM or has parts that ripstop does not compute: biases,
/// another activation, scaled rotary angles, a head size other than hidden_size / heads, a sliding window
/// that is shorter than the context, quantized weights.
/// Source: transformers, models/llama/configuration_llama.py.
ModelConfig parse_pretrained_config(std::string_view text, const std::string& name);

/// Calls parse_pretrained_config for `directory`/config.json.
ModelConfig read_pretrained_config(const std::filesystem::path& directory);

/// The text of a config.json for LlamaForCausalLM of transformers 4 and 5. parse_pretrained_config reads back
/// an equal ModelConfig, except that an initializer_range of 0, which transformers does not know, is written
/// as 1 / sqrt(hidden_size), the value that it stands for.
std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids);

/// An open model of Hugging Face. The headers of its files are read, its weights are not.
struct PretrainedModel {
  ModelConfig config;
  /// The weight files; StoredTensor::file is an index into them.
  std::vector<InputFile> files;
  NamedTensors tensors;  ///< by ripstop's names (take_parameters)
  /// The second copy of a tied embedding table, if the files hold two copies, which must be equal.
  std::optional<StoredTensor> tied_copy;
  /// Hugging Face's names of tensors that are not read: rotary angles, which follow from the config.
  std::vector<std::string> ignored;

  /// Bytes of all weight files.
  int64_t bytes() const;
};

/// Whether `directory` holds a model of Hugging Face: it has a config.json and is no checkpoint of ripstop.
bool is_pretrained_model(const std::filesystem::path& directory);

/// Opens the model in `directory`: its config.json, and model.safetensors or the files of
/// model.safetensors.index.json. Reads the headers alone. Not collective.
/// Throws what parse_pretrained_config and read_safetensors_header throw.
/// Throws Error(kInputData) if a tensor is missing, unknown, in two files, or of another shape or dtype.
/// Throws Error(kInputData) if there are no safetensors files; for weights of PyTorch (.bin, .pth), the hint
/// says how to convert them.
PretrainedModel open_pretrained_model(const std::filesystem::path& directory);

/// Calls read_stored for the model's tensors. `layout` lays out a unit of parameter_table(model.config). If
/// the files hold two copies of a tied table, reads both and throws Error(kInputData) if the copies differ.
void read_pretrained(const PretrainedModel& model, const UnitLayout& layout, int64_t begin, int64_t end,
                     float* to);

/// One XXH3-128 over all tensors: the name, dtype and shape of each, the first 4 KiB of each of its blocks of
/// 16 MiB, and its last 4 KiB. Tells models apart without reading whole files; damage between the samples
/// does not show. Not collective. Throws what contents_hash throws.
std::string samples_hash(const PretrainedModel& model);

/// XXH3-128 of the names, dtypes and shapes of all tensors, and of the XXH3-128 (32 hex digits) of each 16
/// MiB of each tensor, in the order of ripstop's names. Each rank reads its part of the bytes with
/// kBlockThreads threads, each with a buffer of 1 MiB. The result does not depend on the number of ranks.
/// Calls `watch` a few times a second with the percent of this rank's part that is done. Collective over
/// `world`; if a rank fails, all throw. Throws Error(kStorage), and Error(kInputData) if a file became
/// shorter.
std::string contents_hash(
    const PretrainedModel& model, Communicator& world,
    FunctionRef<void(int64_t percent)> watch = [](int64_t) {});

}  // namespace ripstop
