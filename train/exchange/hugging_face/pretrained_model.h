// A model in a directory of Hugging Face: its config.json, and reading and hashing its weights.
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
#include "train/exchange/hugging_face/zip_directory.h"

namespace ripstop {

/// Parses `text`, a config.json of transformers 4 or 5 that messages call `name`. An absent key has the
/// default of its architecture in transformers, but model_type, hidden_size, intermediate_size, vocab_size
/// and numbers of layers and query heads must be given. Throws Error(kInputData) if a size is impossible, or
/// if the architecture is none of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM,
/// or has parts that ripstop does not compute: biases of the feed-forward layers, another activation, windows
/// in only some layers, rotary angles outside RopeType, quantized weights.
ModelConfig parse_pretrained_config(std::string_view text, const std::string& name);

ModelConfig read_pretrained_config(const std::filesystem::path& directory);

/// The architecture of transformers that an export of the model has. Throws Error(kUsage) if no
/// architecture describes the model.
std::string pretrained_architecture(const ModelConfig& model);

/// A config.json of pretrained_architecture for transformers 4 and 5. parse_pretrained_config reads back an
/// equal ModelConfig, but with 1 / sqrt(hidden_size) for an initializer_range of 0 and hidden_size /
/// num_attention_heads for a head_dim of 0.
std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids);

/// A Hugging Face model whose files are open and whose headers have been read.
struct PretrainedModel {
  ModelConfig config;
  /// StoredTensor::file is an index into the files.
  std::vector<InputFile> files;
  NamedTensors tensors;             ///< by ripstop's names (take_parameters)
  std::vector<ZipMember> storages;  ///< storages of .bin files; ZipMember::file is an index into `files`
  std::string wrappers;             ///< the prefix that take_off_wrappers took off the names
  /// The second copy of a tied embedding table, if the files hold two copies; it must equal the first copy.
  std::optional<StoredTensor> tied_copy;
  /// Names of tensors that are not read: tables of angles and masks, and biases of zeros.
  std::vector<std::string> ignored;

  int64_t bytes() const;  ///< bytes of all files
};

/// Whether `directory` has a config.json and is no checkpoint of ripstop.
bool is_pretrained_model(const std::filesystem::path& directory);

/// Opens config.json and the first of these that exists: model.safetensors, the files of
/// model.safetensors.index.json, pytorch_model.bin, the files of pytorch_model.bin.index.json. Reads only
/// headers and small unknown biases. Not collective. Throws what parse_pretrained_config and
/// read_weights_header throw, and Error(kInputData) if a tensor is missing, unknown, in two files, or of
/// another shape or dtype, or if there is no such file; the hint says how to convert other programs' weights.
PretrainedModel open_pretrained_model(const std::filesystem::path& directory);

/// Calls read_stored for the model's tensors. `layout`: the layout of a unit of
/// parameter_table(model.config). Throws Error(kInputData) if two copies of a tied table differ.
void read_pretrained(const PretrainedModel& model, const UnitLayout& layout, int64_t begin, int64_t end,
                     float* to);

/// Throws Error(kInputData) unless each storage of .bin files has the CRC-32 that its archive states. Each
/// rank checks a part of them, with kBlockThreads threads and buffers of 1 MiB. Reads nothing of safetensors,
/// which have no checksums. Collective over `world`; if a rank fails, all throw.
void check_storages(const PretrainedModel& model, Communicator& world);

/// XXH3-128 over all tensors: name, dtype, shape, strides, the first 4 KiB of each 16 MiB, and the last 4
/// KiB. Tells most models apart without reading all bytes. Not collective. Throws what contents_hash throws.
std::string samples_hash(const PretrainedModel& model);

/// XXH3-128 of names, dtypes, shapes and strides of all tensors, and of the XXH3-128 (32 hex digits) of each
/// 16 MiB of each tensor, in the order of ripstop's names; equal on any number of ranks. Also sets
/// StoredTensor::piece_hashes. Each rank hashes a part, with kBlockThreads threads and buffers of 1 MiB.
/// Calls `watch` a few times a second with the percent of this rank's part. Collective over `world`; if a
/// rank fails, all throw. Throws Error(kStorage), and Error(kInputData) if a file became shorter.
std::string contents_hash(
    const PretrainedModel& model, Communicator& world,
    FunctionRef<void(int64_t percent)> watch = [](int64_t) {});

}  // namespace ripstop
