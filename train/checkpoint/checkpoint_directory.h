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

/// Prefixes of names that a killed process may leave: a save; a checkpoint that is deleted, or replaced.
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
  std::optional<Manifest> manifest = {};  ///< if the checkpoint may be used
  std::string problem = {};               ///< else: the reason
  std::string hint = {};                  ///< advice, if the problem is OtherFormat; else empty
  bool is_unreadable = false;  ///< the problem: cannot be read now, or by this version; may be whole
  bool is_superseded = false;  ///< the problem: Takeovers::refusal
  bool is_link = false;        ///< `directory` is a symbolic link

  /// "whole", "unreadable", "superseded" or "damaged".
  const char* verdict() const;
};

/// All step directories below `directory` and links with such names, by step. Names that only resemble one do
/// not count. A checkpoint that a killed process was replacing (kReplacedPrefix) counts if its step has no
/// other, until the next start of the run gives it its name back. Throws Error(kStorage).
std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory);

/// The checkpoint in `directory`, whatever that is called. Throws Error(kStorage) if the takeovers beside it
/// cannot be read.
ListedCheckpoint look_at_checkpoint(Io& io, const std::filesystem::path& directory);

/// A damaged checkpoint that a resume moved aside, "step_00001000.damaged". It is never used again.
struct DamagedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  int64_t bytes = 0;  ///< of all files; 0 if `directory` is a symbolic link
};

/// All of them below `directory`, by name. Throws Error(kStorage).
std::vector<DamagedCheckpoint> list_damaged(Io& io, const std::filesystem::path& directory);

/// Before the first step, on rank 0, the owner of the run: makes `directory`, tries to write in it, removes
/// the remains of killed saves, and puts back a checkpoint whose replacement was interrupted. Throws
/// Error(kStorage).
void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory);

/// Throws Error(kStorage), with the numbers, if the disk has no room for `keep` + 1 checkpoints of
/// `checkpoint_bytes`; with `keep` 0, for one more than there are. Whole checkpoints count as room, without
/// the holes of their files; not behind links, as deleting a link frees nothing. The error names what was
/// moved aside.
void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep, int64_t checkpoint_bytes);

/// Deletes whole checkpoints, but not the newest `keep` (0: all) up to `step`, not `best_step`, and none
/// newer than `step`, which was saved just now. Damaged and unreadable ones do not count and stay. Superseded
/// ones up to `step` and what was moved aside of `step` go, and a text in `warnings` names each. Returns the
/// deleted steps. A failure becomes a text in `warnings`.
std::vector<int64_t> remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step,
                                            int64_t keep, std::optional<int64_t> best_step,
                                            std::vector<std::string>& warnings);

}  // namespace ripstop
