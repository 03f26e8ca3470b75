// A directory with adapters as PEFT stores them: where the bytes of each of ripstop's adapters lie.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "data/files/file.h"
#include "model/lora.h"
#include "parallel/unit_layout.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/peft/peft_config.h"

namespace ripstop {

/// Open adapters of a model. Their weights are not read yet. Can be moved, not copied.
struct PeftAdapter {
  std::filesystem::path directory;
  PeftConfig config;
  ModelConfig model;
  InputFile file;
  /// By ripstop's name: F32, F16 or BF16. The rows of b of q_proj and k_proj are in Hugging Face's order
  /// (pretrained_row).
  std::map<std::string, StoredTensor> tensors;

  /// A hash of all of their bytes, configuration included. Reads the file. Throws Error(kStorage).
  std::string weights_hash() const;
};

/// Opens the adapters in `directory`: adapter_config.json and adapter_model.safetensors. Reads the headers
/// alone. Not collective. Throws Error(kInputData) in one line, as read_peft_config and
/// read_safetensors_header do, and if a tensor is missing, unknown, of another dtype, or of another shape
/// than `model` makes it: then the adapters are of another base. With a hint if there are only weights of
/// PyTorch. PEFT compares no base either: adapters of another model of the same sizes cannot be told.
PeftAdapter open_peft_adapter(const std::filesystem::path& directory, const ModelConfig& model);

/// Throws Error(kUsage) unless `lora`, that of a config, computes what the adapters do: the same rank, alpha,
/// targets and rslora. The dropout may be another. The hint is what to write in [lora].
void require_same_lora(const PeftAdapter& adapter, const LoraConfig& lora);

/// Opens what lora.adapter names and compares it with the model and the rest of [lora]; none if it is empty.
/// Throws Error(kUsage) if it is no directory, and as open_peft_adapter and require_same_lora.
std::optional<PeftAdapter> open_first_adapters(const LoraSection& lora, const ModelConfig& model);

/// Overwrites `to` with the elements [begin, end) of the flat buffer of `layout`, whose unit is one of
/// adapter_table of the adapters' model; padding becomes zero. Rows are in ripstop's order, values of 16 bits
/// become float32 exactly. Reads what these elements need and no more. Not collective; any thread may call.
/// Throws Error(kInputData) if a value is not finite, and Error(kStorage) as InputFile::read_at.
void read_peft(const PeftAdapter& adapter, const UnitLayout& layout, int64_t begin, int64_t end, float* to);

/// PEFT's name of one of ripstop's adapters: "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"
/// of "layers.3.attention.wq.lora_A.weight".
std::string peft_name(const std::string& name);

}  // namespace ripstop
