// Finds the runs and checkpoints that a path on the command line names. Each function throws Error(kUsage) if
// the path names nothing or something of another kind, and Error(kStorage) if the run or checkpoint is
// damaged or the system refuses to read it. Not collective.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// Whether a run has begun in `directory`: it holds metrics.jsonl, prompt_template.txt, a LOCK without step
/// directories beside it, or step directories in `checkpoints`. Throws Error(kStorage) if the system refuses
/// to read it.
bool is_run(Io& io, const std::filesystem::path& directory);

/// The runs that `path` names: `path` itself if it is a run, else the runs directly inside `path`, ordered by
/// name. Throws Error(kUsage) if there are none; if `path` does not exist, with a similar name that exists.
std::vector<std::filesystem::path> find_runs(Io& io, const std::filesystem::path& path);

/// The directory that holds the step directories of `path`: `path`/checkpoints if `path` is a run (it does
/// not exist before the first save), or `path` itself if it holds step directories. Throws Error(kUsage) if
/// `path` is neither.
std::filesystem::path find_checkpoints(Io& io, const std::filesystem::path& path);

/// Finds a step directory. If `path` is a step directory, returns it. Otherwise `path` is as for
/// find_checkpoints, and `which` is one of:
/// - "latest": the newest checkpoint that is whole or of another format and not superseded (Takeovers); if
///   there is none, the newest of all.
/// - "best": the best checkpoint according to the newest whole one; if that names none, as "latest".
/// - a step ("60", "step_00000060"). The checkpoint may be superseded; then it cannot be opened.
/// - the path of a step directory of this run.
/// Throws Error(kUsage) for another `which` and if there is no such checkpoint, Error(kStorage) if the best
/// checkpoint does not exist any more.
std::filesystem::path find_checkpoint(Io& io, const std::filesystem::path& path, const std::string& which);

/// Lists the entries of `directory` that forbid a run or an evaluation to write there: "plots/, prepare.json,
/// test.h5 and 2 more"; "" if there are none. These are files of data sets, runs and models (config.toml,
/// tokenizer.model, prompt_template.txt, LOCK, prepare.json, manifest.json, *.h5, *.jsonl, *.safetensors),
/// unless a name in `own` begins the file's name, and folders except `logs`, a `checkpoints` without
/// checkpoints, and hidden ones other than .git. Job scripts, logs and notes are allowed. Throws
/// Error(kStorage).
std::string entries_in_the_way(Io& io, const std::filesystem::path& directory,
                               std::span<const std::string_view> own = {});

}  // namespace ripstop
