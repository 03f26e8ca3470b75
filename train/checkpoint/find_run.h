// Finds the runs and checkpoints that a path on the command line names. For every verb: if the path names
// nothing, or something of another kind, that is Error(kUsage); if it is damaged, or the system refuses to
// read it, Error(kStorage). Not collective.
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

/// The runs that `path` names: `path` itself, else the runs directly inside it, by name. If there are none,
/// throws Error(kUsage) with the nearest name that exists.
std::vector<std::filesystem::path> find_runs(Io& io, const std::filesystem::path& path);

/// The directory of the run `path` for step directories, which does not exist before the first save; or
/// `path` itself, if that holds step directories. Throws Error(kUsage) as find_runs.
std::filesystem::path find_checkpoints(Io& io, const std::filesystem::path& path);

/// Finds a step directory. If `path` is a step directory, returns it. Else `path` is as for find_checkpoints,
/// and `which` is "latest", "best", a step ("60", "step_00000060"), or the path of a step directory of this
/// run. "latest" is the newest checkpoint that is whole or of another format, without superseded ones
/// (Takeovers); if there is none, the newest of all. "best" is the best checkpoint by the newest whole one;
/// if that names none, "latest". A step also finds a superseded checkpoint, which cannot be opened. Throws
/// Error(kUsage) for another `which` and if there is no such checkpoint, Error(kStorage) if the best is gone.
std::filesystem::path find_checkpoint(Io& io, const std::filesystem::path& path, const std::string& which);

/// Names the entries of `directory` beside which a run or an evaluation must not write: "plots/,
/// prepare.json, test.h5 and 2 more"; "" if there are none. These are files of data sets, runs and models
/// (config.toml, tokenizer.model, prompt_template.txt, LOCK, prepare.json, manifest.json, *.h5, *.jsonl,
/// *.safetensors) whose names begin with none of `own`, and folders except `logs`, an empty `checkpoints`,
/// and hidden ones other than .git. Job scripts, logs and notes are allowed. Throws Error(kStorage).
std::string entries_in_the_way(Io& io, const std::filesystem::path& directory,
                               std::span<const std::string_view> own = {});

}  // namespace ripstop
