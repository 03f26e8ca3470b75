// Converts models: a checkpoint to a directory of Hugging Face, adapters to a directory of PEFT, and a model
// of Hugging Face to a checkpoint.
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

/// Called often, on the caller's thread, with the bytes of this rank's share that are done.
using ExportProgress = FunctionRef<void(const char* doing, int64_t done_bytes, int64_t total_bytes)>;

/// Writes the files of `layout` into `directory`, which rank 0 has made and all ranks see. `model` is a
/// checkpoint of any mesh; adapters are merged (add_adapters). Ranks, and kBlockThreads threads of each,
/// share the work in parts of some 16 MiB. A thread reads a part, puts rows into Hugging Face's order, rounds
/// once, writes, and later reads the part back from the device and compares. After all files are synced,
/// checks that every byte was written once. With several ranks, or if `hashes_files` asks for hashes, ranks
/// then read and compare whole files, perhaps from the page cache. Returns the files on all ranks. Memory: 20
/// MiB a thread, and the memory of CheckpointReader. Collective. Throws Error(kStorage), and
/// Error(kInputData) with the tensor and the number if the type cannot hold a weight.
std::vector<CheckedFile> export_weights(Io& io, Communicator& world, const StoredModel& model,
                                        const ExportLayout& layout, const std::filesystem::path& directory,
                                        bool hashes_files, ExportProgress progress);

/// Makes the new file DIRECTORY/NAME, syncs it, reads it back and compares. Throws Error(kStorage).
CheckedFile write_checked_file(Io& io, const std::filesystem::path& directory, const std::string& name,
                               const std::string& bytes);

struct ExportOptions {
  /// nullopt: precision.compute of the run; float32 for an import and for adapters alone
  std::optional<ExportDType> dtype = {};
  std::optional<ExportedAdapters> adapters = {};  ///< exports these alone, for PEFT; nullopt: the whole model
  int64_t most_file_bytes = ExportLayout::kMostFileBytes;
  bool hashes_files = true;     ///< the report has hashes of the weight files, which takes a further pass
  std::string written_by = {};  ///< version and commit of this program
  /// Called on rank 0 with notes for people: leftovers of a killed export, missing files.
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct ExportReport {
  ExportDType dtype = ExportDType::kFloat32;
  int64_t tensors = 0;
  std::vector<CheckedFile> files;  ///< weights first
  bool has_tokenizer = false;
  bool writes_summaries = false;  ///< has tokenizer and prompt: `ripstop summarize` takes the directory
  int64_t weight_files = 0;       ///< number of weight files in `files`
  int64_t bytes() const;
};

/// Writes the checkpoint `trained` as the directory `output`, for AutoModelForCausalLM.from_pretrained and
/// AutoTokenizer.from_pretrained. With options.adapters, writes the adapters alone, for
/// PeftModel.from_pretrained; then the checkpoint has the units of adapter_table for adapters.lora. Writes
/// and checks the files in a PartialDirectory, so `output` appears complete or not at all. Returns the report
/// on rank 0. Collective. Throws Error(kUsage) if `output` exists and is not an empty directory, or if
/// another process makes it; Error(kInputData) if the run's tokenizer is not the one of its training, and as
/// export_weights; Error(kStorage), with the numbers, if the disk has too little room, and if anything cannot
/// be read or written.
ExportReport export_model(Io& io, Communicator& world, const TrainedModel& trained,
                          const std::filesystem::path& output, const ExportOptions& options,
                          ExportProgress progress);

/// Writes a model of Hugging Face as the run directory `output`, with the checkpoint
/// checkpoints/step_00000000 of one rank and the model's tokenizer.model, if any. The weights are float32;
/// the moments are zeros, which take no room. Threads read and write blocks (write_rank_file), so memory does
/// not grow with the model. `output` appears complete or not at all. Calls `note` for each directory that
/// killed imports left, and `progress`, on this thread, with the number of weights done; an exception of
/// `progress` ends the import. Needs no MPI; main thread only (libhdf5). Throws Error(kUsage) if `output`
/// exists and is not an empty directory, Error(kInputData) as read_pretrained, Error(kStorage). Returns the
/// bytes of the checkpoint.
int64_t import_model(Io& io, const StoredModel& model, const std::filesystem::path& output,
                     const std::function<void(const std::string&)>& note = {},
                     const std::function<void(int64_t elements)>& progress = {});

}  // namespace ripstop
