// The weights of a checkpoint as safetensors files: each rank writes a part of every file's bytes, and nobody
// gathers.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "train/exchange/read/stored_model.h"
#include "train/exchange/write/export_layout.h"

namespace ripstop {

/// A file that was written, synced, read back and found equal.
struct CheckedFile {
  std::string name;
  int64_t bytes = 0;
  std::string hash;  ///< XXH3-128, 32 hexadecimal digits; may be empty (export_weights)
};

/// What is done of this rank's share, on the caller's thread; called often.
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

}  // namespace ripstop
