#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "model/core/function_ref.h"

namespace ripstop {

struct CheckpointDamage {
  std::string file;
  std::string what;
  int64_t offset = 0;  ///< offset of the damaged part in the file; 0 if the whole file is meant
};

/// Compares the files of the checkpoint `directory` with the manifest and the hashes. Also finds missing and
/// foreign files, the name of another step, and a superseded checkpoint. Returns at most 100 findings a file;
/// a failure to read is a finding. Calls `report` with the verified and the total bytes of the rank files.
std::vector<CheckpointDamage> verify_checkpoint(
    Io& io, const std::filesystem::path& directory,
    FunctionRef<void(int64_t done_bytes, int64_t total_bytes)> report = [](int64_t, int64_t) {});

}  // namespace ripstop
