// Makes a checkpoint of a Hugging Face model.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "data/files/io.h"
#include "train/exchange/read/stored_model.h"

namespace ripstop {

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
