// Lists and deletes the checkpoints in RUN/checkpoints, and checks the disk space for a save. Not collective.
//
// A step directory may be a symbolic link, for example into an archive. Reads follow the link. Deleting,
// moving or replacing the checkpoint changes only the link.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/io.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {

/// Name prefixes of the temporary directories of saves, deletions and replacements.
inline constexpr std::string_view kAttemptPrefix = ".tmp.", kTrashPrefix = ".trash.",
                                  kReplacedPrefix = ".old.";
/// Suffixes of checkpoints that were moved aside: a resume moves damaged checkpoints, a save moves a
/// superseded checkpoint of its own step. A dot and a number may follow.
inline constexpr std::string_view kDamagedSuffix = ".damaged", kSupersededSuffix = ".superseded";
/// The name of a temporary directory: `prefix` + "step_00001000.PID.TIME", different in each call.
std::string temporary_name(std::string_view prefix, int64_t step);

/// Throws Error(kStorage) unless `path` is a plain file of `bytes` bytes.
void check_size(Io& io, const std::filesystem::path& path, int64_t bytes);

/// A step directory, checked by its manifest and the sizes of its files.
struct ListedCheckpoint {
  int64_t step = 0;
  std::filesystem::path directory;
  std::optional<Manifest> manifest = {};  ///< set if the checkpoint may be used
  std::string problem = {};               ///< why the checkpoint may not be used
  std::string hint = {};       ///< advice for people; set only for a manifest of another format (OtherFormat)
  bool is_unreadable = false;  ///< cannot be read now, or by this version of ripstop
  bool is_superseded = false;  ///< Takeovers::refusal refuses the checkpoint
  bool is_link = false;

  /// "whole", "unreadable", "superseded" or "damaged".
  const char* verdict() const;
};

/// The checkpoints in `directory`, ordered by step: directories and links with the name of a step, or, if it
/// is missing, with kReplacedPrefix before it. Throws Error(kStorage).
std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory);

/// Checks the checkpoint in `directory`, which may have any name. Leaves `step` and `is_link` unset. Throws
/// Error(kStorage) if the system refuses to read the takeovers.json beside it.
ListedCheckpoint look_at_checkpoint(Io& io, const std::filesystem::path& directory);

/// A checkpoint that was moved aside, such as "step_00001000.damaged". list_checkpoints() leaves it out.
struct CheckpointAside {
  int64_t step = 0;
  std::filesystem::path directory;
  int64_t bytes = 0;           ///< bytes of all files; 0 if `directory` is a symbolic link
  bool is_superseded = false;  ///< `directory` has the suffix kSupersededSuffix, not kDamagedSuffix
};

/// The checkpoints in `directory` that were moved aside, ordered by name. Throws Error(kStorage).
std::vector<CheckpointAside> list_aside(Io& io, const std::filesystem::path& directory);

/// Renames `directory` to `name` + `suffix`; if that fails, perhaps because the path exists, adds a dot and a
/// number. Returns the new path; nullopt if both renames failed.
std::optional<std::filesystem::path> move_aside(Io& io, const std::filesystem::path& directory,
                                                const std::filesystem::path& name, std::string_view suffix);

/// Makes `directory`, tests that it can be written, tries to remove the remains of killed processes, and puts
/// back checkpoints whose replacement was interrupted. For the run's owner, before the first step. Throws
/// Error(kStorage).
void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory);

/// Throws Error(kStorage), with the numbers, if the disk lacks space for `keep` + 1 checkpoints of
/// `checkpoint_bytes` each: a save commits before it deletes. Whole checkpoints count as free space, because
/// saves will delete them; holes in their files and symbolic links do not count. `keep` 0 deletes nothing, so
/// one more checkpoint must fit.
void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep, int64_t checkpoint_bytes);

/// Deletes old checkpoints after the save of `step`; none if `keep` is 0. Keeps the newest `keep` whole
/// checkpoints up to `step`, the checkpoint of `best_step`, checkpoints of later steps, and damaged and
/// unreadable ones. Also deletes superseded checkpoints older than those `keep`, and ".damaged" ones of
/// `step`, with a text in `warnings` for each. A failure becomes a text in `warnings`.
void remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step, int64_t keep,
                            std::optional<int64_t> best_step, std::vector<std::string>& warnings);

}  // namespace ripstop
