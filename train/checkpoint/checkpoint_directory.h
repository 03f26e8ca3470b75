// RUN/checkpoints as one process sees it: what is there, what may be deleted, whether the next save can work.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/io.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {

/// A step directory, and what a look at its manifest and its files' sizes says.
struct ListedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  std::optional<Manifest> manifest;  ///< where manifest and sizes are right
  std::string problem;               ///< otherwise: why not
  bool unreadable = false;           ///< the problem is that it cannot be read now; it may be whole
};

/// Every step_* below `directory`, by step; names that only resemble one are not. Throws Error(kStorage).
std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory);

/// Reads the manifest of one checkpoint directory and checks that every file of it is there with its size.
/// Throws Error(kStorage) that says what is wrong.
Manifest check_checkpoint(Io& io, const std::filesystem::path& directory);

/// The step directory that PATH means: itself, where it is one; else the `which` ("latest", "best" or a step)
/// of the run, or the checkpoints directory, PATH. "best" is what the newest whole checkpoint calls so; where
/// it names none, the newest. Throws Error(kUsage) for a `which` of another form, Error(kStorage) where there
/// is no such checkpoint. "latest" is the newest whole one, or the newest where none is.
std::filesystem::path find_checkpoint(Io& io, const std::filesystem::path& path, const std::string& which);

/// Before the first step, on rank 0: makes `directory`, tries to write in it, removes what killed saves left,
/// puts back a checkpoint whose replacement was interrupted. For the owner of the run. Throws
/// Error(kStorage).
void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory);

/// Throws Error(kStorage), with the numbers, where the disk has no room for `keep` + 1 checkpoints of
/// `checkpoint_bytes`, those already there counted as room. keep 0 asks for one more than there are.
void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep, int64_t checkpoint_bytes);

/// Deletes whole checkpoints but the newest `keep` (0: all) of those up to `step`, `best_step` and any newer
/// than `step`. What is not whole neither counts nor goes. Returns the deleted steps; failures become
/// `warnings`.
std::vector<int64_t> remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step,
                                            int64_t keep, std::optional<int64_t> best_step,
                                            std::vector<std::string>& warnings);

}  // namespace ripstop
