// Verifies every byte of every file of a checkpoint.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

struct CheckpointDamage {
  std::string file;  ///< name inside the checkpoint
  std::string what;
  int64_t offset = 0;  ///< byte at which the damaged part begins; 0 if it is the whole file
};

/// Compares every byte of the checkpoint `directory` with the manifest and the hashes. Also finds missing and
/// foreign files, and that it is superseded (Takeovers). At most 100 findings for each file. No findings: the
/// checkpoint is whole. Any failure to read is a finding, not an exception. `report` is called meanwhile.
std::vector<CheckpointDamage> verify_checkpoint(
    Io& io, const std::filesystem::path& directory,
    const std::function<void(int64_t done_bytes, int64_t total_bytes)>& report = {});

}  // namespace ripstop
