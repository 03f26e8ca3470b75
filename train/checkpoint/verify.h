// Full verification of a checkpoint: every byte of every file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/io.h"

namespace ripstop {

struct CheckpointDamage {
  std::string file;  ///< name inside the checkpoint
  std::string what;
  int64_t offset = 0;  ///< byte where the damaged part begins; 0 where it is the whole file
};

/// Reads every byte of the checkpoint `directory` and compares it with manifest and hashes; also names files
/// that are missing or do not belong. At most 100 findings a file. Empty: the checkpoint is whole. Throws
/// nothing but what is no finding (out of memory).
std::vector<CheckpointDamage> verify_checkpoint(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
