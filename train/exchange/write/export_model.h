// Converts a checkpoint to a Hugging Face model or adapters of PEFT, and a Hugging Face model to a
// checkpoint.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/write/export_files.h"
#include "train/exchange/write/export_layout.h"

namespace ripstop {

/// A file that was written, synced, read back and compared.
struct CheckedFile {
  std::string name;
  int64_t bytes = 0;
  std::string hash;  ///< XXH3-128 as 32 hex digits; may be empty (export_weights)
};

/// Called often, on the caller's thread: `done_bytes` of this rank's `total_bytes` are done. `doing` names
/// the work.
using ExportProgress = FunctionRef<void(const char* doing, int64_t done_bytes, int64_t total_bytes)>;

/// Writes the files of `layout` into `directory`, which rank 0 has made and all ranks see. `model` is a
/// checkpoint of any mesh, read by WeightsReader. Ranks, and kBlockThreads threads of each, share the work in
/// parts of about 16 MiB. A thread reads a part, puts rows into Hugging Face's order, rounds once, writes,
/// and later reads the part back from the device and compares it. After all files are synced, checks that
/// every byte was written once. With several ranks or `hashes_files`, the ranks then read all files, perhaps
/// from the page cache, and compare them with what was written. Returns the files on all ranks. Memory: about
/// 20 MiB a thread, and that of the reader. Collective. Throws Error(kStorage), the errors of the reader, and
/// Error(kInputData), with tensor and number, if the type cannot hold a weight.
std::vector<CheckedFile> export_weights(Io& io, Communicator& world, const StoredModel& model,
                                        const ExportLayout& layout, const std::filesystem::path& directory,
                                        bool hashes_files, ExportProgress progress);

/// Makes the new file `directory`/`name` from `bytes`, syncs it, reads it back and compares. Throws
/// Error(kStorage).
CheckedFile write_checked_file(Io& io, const std::filesystem::path& directory, const std::string& name,
                               const std::string& bytes);

struct ExportOptions {
  /// Type of the weights. nullopt: precision.compute of the run; float32 for a model without updates, as an
  /// import, and for exported adapters.
  std::optional<ExportDType> dtype = {};
  /// Adapters to export without the base, for PEFT; nullopt: the whole model.
  std::optional<ExportedAdapters> adapters = {};
  /// Maximum bytes of the tensors in a weight file; a file with a single tensor may have more.
  int64_t most_file_bytes = ExportLayout::kMostFileBytes;
  /// Whether the report gets hashes of the weight files, which may take one more pass over the files.
  bool hashes_files = true;
  std::string written_by = {};  ///< version and commit of this program
  CardFacts facts = {};         ///< facts for the head of README.md
  /// Called on rank 0 with notes for people, as on a killed export or missing files.
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct ExportReport {
  ExportDType dtype = ExportDType::kFloat32;
  int64_t tensors = 0;
  std::vector<CheckedFile> files;  ///< weight files come first
  bool has_tokenizer = false;
  PythonTokenizer python_tokenizer = {};
  /// Whether the export has a tokenizer and a prompt for summaries, so that `ripstop summarize` takes it.
  bool writes_summaries = false;
  int64_t weight_files = 0;
  int64_t bytes() const;
};

/// Writes the checkpoint `trained` as the directory `output`, for AutoModelForCausalLM.from_pretrained and
/// ExportReport::python_tokenizer. With options.adapters, writes only the adapters, for
/// PeftModel.from_pretrained: then the checkpoint must have the units of adapter_table for adapters.lora.
/// `output` appears complete or not at all (PartialDirectory). Returns the report on rank 0. Collective.
/// Throws what export_weights throws, and:
/// - Error(kUsage) if `output` exists and is not an empty directory, if another process makes it, or if no
///   architecture of transformers describes the model;
/// - Error(kInputData) if the run was trained with another tokenizer, or has a damaged file;
/// - Error(kStorage) if anything cannot be read or written; with the numbers, if the disk has too little
///   space.
ExportReport export_model(Io& io, Communicator& world, const TrainedModel& trained,
                          const std::filesystem::path& output, const ExportOptions& options,
                          ExportProgress progress);

/// Writes a Hugging Face model as the run directory `output`, with the one-rank checkpoint
/// checkpoints/step_00000000 and the files of the model's tokenizer, if it can be read. The weights are
/// float32; the moments are zeros, which take no disk space. `output` appears complete or not at all. Calls
/// `note` for leftovers of killed imports and with notes on the files, and `progress`, on this thread, with
/// the elements done, padding included; an exception of `progress` ends the import. Returns the bytes of the
/// checkpoint. Main thread only (libhdf5). Throws Error(kStorage) if the disk has too little space, and the
/// errors of PartialDirectory, CheckpointWriter, check_storages, Tokenizer and read_pretrained.
int64_t import_model(
    Io& io, const StoredModel& model, const std::filesystem::path& output,
    const std::function<void(const std::string&)>& note = [](const std::string&) {},
    const std::function<void(int64_t elements)>& progress = {});

}  // namespace ripstop
