// RUN/checkpoints: lists checkpoints, deletes old ones, checks the room for the next save. Not collective.
//
// A step directory may be a symbolic link, for example into an archive. The checkpoint behind it is used like
// any other. Deleting, moving or replacing it changes the link; nothing behind a link ever changes.
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

/// Prefixes of temporary names, which a killed process may leave: of a save, of a checkpoint being deleted,
/// of a checkpoint being replaced.
inline constexpr std::string_view kAttemptPrefix = ".tmp.", kTrashPrefix = ".trash.",
                                  kReplacedPrefix = ".old.";
/// The suffix of a damaged checkpoint that a resume moved aside; a dot and a number may follow.
inline constexpr std::string_view kDamagedSuffix = ".damaged";
/// PREFIX + "step_00001000.PID.TIME": another name in each call.
std::string temporary_name(std::string_view prefix, int64_t step);

/// A step directory, checked by its manifest and the sizes of its files.
struct ListedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  std::optional<Manifest> manifest = {};  ///< set if the checkpoint may be used
  std::string problem = {};               ///< the reason why it may not
  std::string hint = {};                  ///< advice, only for OtherFormat
  bool is_unreadable = false;             ///< not readable now, or by this version, and perhaps whole
  bool is_superseded = false;             ///< refused by Takeovers::refusal
  bool is_link = false;                   ///< `directory` is a symbolic link

  /// "whole", "unreadable", "superseded" or "damaged".
  const char* verdict() const;
};

/// All step directories in `directory` and links with exact step names, by step. A checkpoint that a killed
/// process was replacing (kReplacedPrefix) counts if its step has no other; the next start of the run renames
/// it back. Throws Error(kStorage).
std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory);

/// The checkpoint in `directory`, which may have any name. Throws Error(kStorage) if the takeovers.json
/// beside it cannot be read.
ListedCheckpoint look_at_checkpoint(Io& io, const std::filesystem::path& directory);

/// A damaged checkpoint that a resume moved aside, "step_00001000.damaged". It is never used again.
struct DamagedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  int64_t bytes = 0;  ///< of all files; 0 if `directory` is a symbolic link
};

/// The checkpoints in `directory` that were moved aside, by name. Throws Error(kStorage).
std::vector<DamagedCheckpoint> list_damaged(Io& io, const std::filesystem::path& directory);

/// Makes `directory`, tries to write in it, removes the remains of killed saves, and puts back a checkpoint
/// whose replacement was interrupted. For the owner of the run, before the first step. Throws
/// Error(kStorage).
void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory);

/// Throws Error(kStorage), with the numbers, if the disk has no room for `keep` + 1 checkpoints of
/// `checkpoint_bytes` (the old ones are deleted after a save); with `keep` 0, for one more. Whole ones count
/// as room, without holes in their files and without links, because deleting a link frees nothing. The error
/// names the bytes of damaged checkpoints that were moved aside.
void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep, int64_t checkpoint_bytes);

/// Deletes old checkpoints after `step` was saved. Keeps the newest `keep` whole ones up to `step` (0: keeps
/// all), `best_step`, everything newer than `step`, and damaged and unreadable ones, which do not count. Also
/// deletes superseded ones up to `step`, and damaged ones of `step` that were moved aside, with a text in
/// `warnings` for each. Returns the deleted steps. A failure becomes a text in `warnings`.
std::vector<int64_t> remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step,
                                            int64_t keep, std::optional<int64_t> best_step,
                                            std::vector<std::string>& warnings);

}  // namespace ripstop
