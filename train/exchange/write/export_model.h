// Models from one format to the other: a checkpoint of a run as a directory of Hugging Face, its adapters as
// a directory of PEFT, and a model of Hugging Face as a checkpoint.
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

/// A file that was written, synced, read back and found equal.
struct CheckedFile {
  std::string name;
  int64_t bytes = 0;
  std::string hash;  ///< XXH3-128, 32 hexadecimal digits; may be empty (export_weights)
};

/// Gets the bytes done of this rank's share, on the caller's thread; called often.
using ExportProgress = FunctionRef<void(const char* doing, int64_t done_bytes, int64_t total_bytes)>;

/// Makes the files of `layout` in `directory`, which all ranks see and rank 0 has made, from `model`, a
/// checkpoint of any mesh; adapters are merged into their base in float64 and rounded to float32 once. The
/// ranks share the work in parts of some 16 MiB, as UnitLayout would cut the units for one fsdp axis, and
/// each rank's kBlockThreads threads its parts: every part is read, turned, rounded once, written at its
/// place and, while later parts are written, read back from the device and compared. When all are synced,
/// every byte must have been written once. If there are several ranks, or `hashes_files` asks for the files'
/// hashes, each file is then read again as a whole, from the page cache if it is there, and compared.
/// Returns the files, on all ranks. Memory: 20 MiB a thread, and what CheckpointReader keeps. Collective.
/// Throws Error(kStorage), and Error(kInputData) with the tensor and the number if a weight does not fit
/// into the type.
std::vector<CheckedFile> export_weights(Io& io, Communicator& world, const StoredModel& model,
                                        const ExportLayout& layout, const std::filesystem::path& directory,
                                        bool hashes_files, ExportProgress progress);

/// Makes the new file DIRECTORY/NAME with `bytes`, syncs it, reads it back and compares. Throws
/// Error(kStorage).
CheckedFile write_checked_file(Io& io, const std::filesystem::path& directory, const std::string& name,
                               const std::string& bytes);

struct ExportOptions {
  /// none: precision.compute of the run; float32 for an import, and for adapters alone
  std::optional<ExportDType> dtype = {};
  std::optional<ExportedAdapters> adapters = {};  ///< these alone, for PEFT; none: the whole model
  int64_t most_file_bytes = ExportLayout::kMostFileBytes;
  bool hashes_files = true;     ///< ExportReport has the hashes of the weights' files; another pass over them
  std::string written_by = {};  ///< version and commit of this program
  /// Gets texts for people, on rank 0: what a killed export left, what is missing.
  std::function<void(const std::string&)> note = [](const std::string&) {};
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

/// Writes `output` from `trained`, a checkpoint: a directory that AutoModelForCausalLM.from_pretrained and
/// AutoTokenizer.from_pretrained load, or with options.adapters one that PeftModel.from_pretrained loads
/// beside its base; then the checkpoint has the units of adapter_table for adapters.lora. Written beside its
/// place, each rank its share, synced and read back, then renamed: it is whole or absent. Returns the report
/// on rank 0. Collective. Throws Error(kUsage) if `output` exists and is no empty directory, or if another
/// process makes it; Error(kInputData) if the run's tokenizer is not the one of its training, or as
/// export_weights; Error(kStorage), with the numbers, if the disk has too little room, and if anything
/// cannot be read or written.
ExportReport export_model(Io& io, Communicator& world, const TrainedModel& trained,
                          const std::filesystem::path& output, const ExportOptions& options,
                          ExportProgress progress);

/// Writes `model`, one of Hugging Face, as `output`: a directory as that of a run, with the checkpoint
/// checkpoints/step_00000000 of one rank and, if the model has one, its tokenizer.model. The weights are
/// float32; the moments are zeros, which take no room. Threads read and write blocks (write_rank_file):
/// memory does not grow with the model. `output` appears complete or not at all. `note` gets a text about
/// each directory that killed imports left, `progress`, on this thread, the weights done; what it throws
/// ends the import. Needs no MPI; main thread only (libhdf5). Throws Error(kUsage) if `output` exists and
/// is not an empty directory, Error(kInputData) as read_pretrained, Error(kStorage). Returns the bytes of
/// the checkpoint.
int64_t import_model(Io& io, const StoredModel& model, const std::filesystem::path& output,
                     const std::function<void(const std::string&)>& note = {},
                     const std::function<void(int64_t elements)>& progress = {});

}  // namespace ripstop
