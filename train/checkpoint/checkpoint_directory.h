// Functions on the directory RUN/checkpoints: list the checkpoints, delete old ones, check the disk space for
// the next save. Not collective.
//
// A step directory may be a symbolic link, for example into an archive. The checkpoint behind the link is
// used like any other. Deleting, moving or replacing the checkpoint changes the link alone; nothing behind a
// link ever changes.
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

/// Prefixes of the temporary directories that a killed process may leave: a save under way, a checkpoint
/// being deleted, a checkpoint being replaced.
inline constexpr std::string_view kAttemptPrefix = ".tmp.", kTrashPrefix = ".trash.",
                                  kReplacedPrefix = ".old.";
/// The suffix of a damaged checkpoint that a resume moved aside; a dot and a number may follow.
inline constexpr std::string_view kDamagedSuffix = ".damaged";
/// The name of a temporary directory: `prefix` + "step_00001000.PID.TIME", different in each call.
std::string temporary_name(std::string_view prefix, int64_t step);

/// A step directory, checked by its manifest and the sizes of its files.
struct ListedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  std::optional<Manifest> manifest = {};  ///< set if the checkpoint may be used
  std::string problem = {};               ///< the reason why the checkpoint may not be used
  std::string hint = {};       ///< advice for people; set only for a manifest of another format (OtherFormat)
  bool is_unreadable = false;  ///< unreadable now, or for this version of ripstop, but perhaps whole
  bool is_superseded = false;  ///< Takeovers::refusal refuses the checkpoint
  bool is_link = false;        ///< `directory` is a symbolic link

  /// The result of the check, as a word: "whole", "unreadable", "superseded" or "damaged".
  const char* verdict() const;
};

/// The checkpoints in `directory`, ordered by step: all directories and symbolic links with exact step names.
/// A checkpoint whose replacement was interrupted (kReplacedPrefix) counts if its step has no other; the next
/// start of the run renames it back. Throws Error(kStorage).
std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory);

/// Checks the checkpoint in `directory`; the directory may have any name. Throws Error(kStorage) if the
/// takeovers.json beside the directory cannot be read.
ListedCheckpoint look_at_checkpoint(Io& io, const std::filesystem::path& directory);

/// A damaged checkpoint that a resume moved aside, "step_00001000.damaged". It is never used again.
struct DamagedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  int64_t bytes = 0;  ///< bytes of all files; 0 if `directory` is a symbolic link
};

/// The damaged checkpoints in `directory` that were moved aside, ordered by name. Throws Error(kStorage).
std::vector<DamagedCheckpoint> list_damaged(Io& io, const std::filesystem::path& directory);

/// Makes `directory`, tests that it can be written, removes the remains of killed saves, and puts back a
/// checkpoint whose replacement was interrupted. Called by the owner of the run before the first step. Throws
/// Error(kStorage).
void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory);

/// Throws Error(kStorage), with the numbers, if the disk has too little space for `keep` + 1 checkpoints of
/// `checkpoint_bytes` each (a save deletes old checkpoints after the commit). With `keep` 0, which keeps all,
/// the space must be enough for one more checkpoint. The bytes of whole checkpoints count as free, because
/// saves will delete these checkpoints; holes in files and symbolic links do not count. The error names the
/// bytes of damaged checkpoints that were moved aside.
void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep, int64_t checkpoint_bytes);

/// Deletes old checkpoints after `step` was saved; nothing with `keep` 0. Keeps the newest `keep` whole
/// checkpoints up to `step`, the checkpoint of `best_step`, checkpoints newer than `step`, and damaged and
/// unreadable ones. Also deletes superseded checkpoints up to `step` and damaged ones of `step` that were
/// moved aside; for each of these, `warnings` gets a text. Returns the deleted steps. A failure becomes a
/// text in `warnings`.
std::vector<int64_t> remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step,
                                            int64_t keep, std::optional<int64_t> best_step,
                                            std::vector<std::string>& warnings);

}  // namespace ripstop
