// RUN/checkpoints: lists checkpoints, deletes old ones, checks whether the next save has room. Not
// collective.
//
// A step directory may be a symbolic link, for example into an archive. The checkpoint behind it is used like
// any other. To delete, to move aside or to replace it changes the link: nothing behind a link ever changes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/io.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {

/// Prefixes of the names that a killed process may leave: a save, a checkpoint that is deleted, one that is
/// replaced.
inline constexpr std::string_view kAttemptPrefix = ".tmp.", kTrashPrefix = ".trash.",
                                  kReplacedPrefix = ".old.";
/// Ends the name of a checkpoint that a resume found damaged and moved aside; a dot and a number may follow.
inline constexpr std::string_view kDamagedSuffix = ".damaged";
/// PREFIX + "step_00001000.PID.TIME": a different name for each call.
std::string temporary_name(std::string_view prefix, int64_t step);

/// A step directory, checked by its manifest and the sizes of its files.
struct ListedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  std::optional<Manifest> manifest;  ///< if manifest and sizes are right
  std::string problem = {};          ///< otherwise: the reason
  bool is_unreadable = false;        ///< the problem: it cannot be read now, and may be whole
  bool is_link = false;              ///< `directory` is a symbolic link
  /// The problem: Takeovers::refusal. The number of the takeover that committed it.
  std::optional<int64_t> superseded = {};
};

/// All step directories below `directory` and links with such names, by step. Names that only resemble one do
/// not count. A checkpoint that a killed process was replacing (kReplacedPrefix) counts if its step has no
/// other, until the next start of the run gives it its name back. One that is superseded (Takeovers) has no
/// manifest, but a problem. Throws Error(kStorage).
std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory);

/// A damaged checkpoint that a resume moved aside, "step_00001000.damaged". It is never used again.
struct DamagedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  int64_t bytes = 0;  ///< of its files; 0 if `directory` is a symbolic link
};

/// All of them below `directory`, by name. Throws Error(kStorage).
std::vector<DamagedCheckpoint> list_damaged(Io& io, const std::filesystem::path& directory);

/// Reads the manifest of one checkpoint directory and checks that every file in it exists with the right
/// size, and that the checkpoint is not superseded (Takeovers). Throws Error(kStorage) with the first
/// difference.
Manifest check_checkpoint(Io& io, const std::filesystem::path& directory);

/// Before the first step, on rank 0: makes `directory`, tries to write in it, removes the remains of killed
/// saves, and puts back a checkpoint whose replacement was interrupted. Only the owner of the run may call
/// this. Throws Error(kStorage).
void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory);

/// Throws Error(kStorage), with the numbers, if the disk has no room for `keep` + 1 checkpoints of
/// `checkpoint_bytes`. Checkpoints that are there count as room, without the holes of their files, and not
/// those behind links: deleting the link frees nothing. keep 0 needs room for one more than there are.
/// Damaged ones that were moved aside count as used, and the error names them.
void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep, int64_t checkpoint_bytes);

/// Deletes whole checkpoints, but not the newest `keep` (0: all) up to `step`, not `best_step`, and none
/// newer than `step`, which was saved just now. Damaged ones do not count and stay. Those that were moved
/// aside go if they are no newer than `step`: the run has got past them; a text in `warnings` names each.
/// Superseded ones (Takeovers) do not count, and go if they are no newer than `step` and have a number: those
/// without are of an older version of ripstop, which a person may want back.
/// Returns the deleted steps. A failure becomes a text in `warnings`.
std::vector<int64_t> remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step,
                                            int64_t keep, std::optional<int64_t> best_step,
                                            std::vector<std::string>& warnings);

}  // namespace ripstop
