// A checkpoint of a run as a model directory of Hugging Face, or its adapters as a directory of PEFT.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "model/lora.h"
#include "parallel/communicator.h"
#include "train/config/run_config.h"
#include "train/exchange/read/stored_model.h"
#include "train/exchange/write/export_layout.h"
#include "train/exchange/write/export_weights.h"

namespace ripstop {

/// What is exported. References are borrowed.
struct ExportSource {
  const StoredModel& model;          ///< a checkpoint
  const std::filesystem::path& run;  ///< holds tokenizer.model and prompt_template.txt
  const RunConfig& config;           ///< of the training
};

struct ExportOptions {
  std::optional<ExportDType> dtype = {};  ///< none: precision.compute of the run, float32 for an import
  int64_t most_file_bytes = ExportLayout::kMostFileBytes;
  bool hashes_files = true;     ///< ExportReport has the hashes of the weights' files; another pass over them
  std::string written_by = {};  ///< version and commit of this program
  /// Gets texts for people, on rank 0: what a killed export left, what is missing.
  std::function<void(const std::string&)> note = {};
};

/// Adapters, and the model that they were trained beside.
struct ExportedAdapters {
  LoraConfig lora;
  std::string base;  ///< its directory, or empty: base_model_name_or_path
  /// How to make a model of Hugging Face of it, for people; empty if it is one, or not known.
  std::string base_export = {};
};

struct ExportReport {
  ExportDType dtype = ExportDType::kFloat32;
  int64_t tensors = 0;
  std::vector<CheckedFile> files;  ///< weights first
  bool has_tokenizer = false;
  bool writes_summaries = false;  ///< tokenizer and prompt are there: `ripstop summarize` takes the directory
  int64_t weight_files = 0;       ///< the first so many of `files`
  int64_t bytes() const;
};

/// Writes `output`, a directory that AutoModelForCausalLM.from_pretrained and AutoTokenizer.from_pretrained
/// load: beside its place, synced and read back, then renamed, so that it is whole or absent. Returns the
/// report on rank 0. Collective. Throws Error(kUsage) if `output` exists and is no empty directory, or if
/// another process makes it; Error(kInputData) if the run's tokenizer is not the one of its training, or as
/// export_weights; Error(kStorage) with the numbers if the disk has too little room, and if anything cannot
/// be read or written.
ExportReport export_model(Io& io, Communicator& world, const ExportSource& source,
                          const std::filesystem::path& output, const ExportOptions& options,
                          ExportProgress progress);

/// Writes `output`, a directory that PeftModel.from_pretrained loads beside its base: adapter_config.json,
/// adapter_model.safetensors, the run's tokenizer and a model card. The checkpoint of `source` has the units
/// of adapter_table for `adapters.lora`. Float32 unless `options.dtype` says otherwise. Otherwise as
/// export_model: each rank writes its share, every byte is read back, and the directory is whole or absent.
/// Collective.
ExportReport export_adapters(Io& io, Communicator& world, const ExportSource& source,
                             const ExportedAdapters& adapters, const std::filesystem::path& output,
                             const ExportOptions& options, ExportProgress progress);

}  // namespace ripstop
