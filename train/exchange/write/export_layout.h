// The place of each tensor in the files of an export.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/lora.h"
#include "model/parameter.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {

struct ExportedTensor {
  std::string name;   ///< name in Hugging Face's models, or in PEFT's adapters
  size_t file = 0;    ///< index in ExportLayout::files
  int64_t begin = 0;  ///< offset of the first byte in the file
  int64_t bytes = 0;
  std::vector<int64_t> shape;
  int64_t columns = 0;
  int64_t turned_head_size = 0;  ///< rows of a head if files order its rows otherwise; else 0

  /// The row of the file's tensor that holds row `row` of ripstop's parameter.
  int64_t stored_row(int64_t row) const;
};

/// A safetensors file: `header`, with its 8 bytes of size, then tensors without gaps.
struct ExportedFile {
  std::string name;
  std::string header;
  int64_t bytes = 0;
};

/// The files of an export, with the tensors in the order of the parameter table: model.safetensors, or
/// several files with at most `most_file_bytes` of tensors (a larger tensor has its own file). A tied head is
/// not stored. Source: https://github.com/huggingface/safetensors, README, "Format"; huggingface_hub,
/// split_torch_state_dict_into_shards().
class ExportLayout {
 public:
  /// The default of `most_file_bytes`, as in transformers 4.
  static constexpr int64_t kMostFileBytes = 5'000'000'000;

  ExportLayout(const ModelConfig& config, ExportDType dtype, int64_t most_file_bytes = kMostFileBytes);
  /// PEFT's single file, adapter_model.safetensors, in the order of adapter_table. `lora` must have a rank.
  ExportLayout(const ModelConfig& config, const LoraConfig& lora, ExportDType dtype);

  ExportDType dtype() const { return dtype_; }
  const std::vector<UnitSpec>& units() const { return units_; }
  const std::vector<ExportedFile>& files() const { return files_; }
  /// The tensors by ripstop's names.
  const std::map<std::string, ExportedTensor, std::less<>>& tensors() const { return tensors_; }
  int64_t bytes() const;
  /// The text of model.safetensors.index.json; empty if one file has all tensors.
  std::string index_json() const;

 private:
  ExportLayout(std::vector<UnitSpec> units, const std::string& stem, int64_t head_size, ExportDType dtype,
               int64_t most_file_bytes);
  void place(const ParameterSpec& parameter, int64_t head_size, int64_t most_file_bytes);
  void write_headers(const std::string& stem);

  ExportDType dtype_;
  std::vector<UnitSpec> units_;
  std::vector<std::string> order_;  // ripstop's names
  std::map<std::string, ExportedTensor, std::less<>> tensors_;
  std::vector<ExportedFile> files_;
};

}  // namespace ripstop
