// Finds what a path on the command line names: a run, one of its checkpoints, a folder of runs. One rule for
// every verb: if nothing is there, or something else than was asked for, that is Error(kUsage). If it is
// there and damaged, or the system refuses to read it, that is Error(kStorage). Not collective.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// Whether a run has begun in `directory`: it holds metrics.jsonl, prompt_template.txt, LOCK without step
/// directories beside it, or step directories in `checkpoints`. Throws Error(kStorage) if the system refuses
/// to tell.
bool is_run(Io& io, const std::filesystem::path& directory);

/// The runs that `path` names: `path` itself, or else those directly inside it, by name. Throws Error(kUsage)
/// if there are none, with what was looked for, and with the nearest name that exists.
std::vector<std::filesystem::path> find_runs(Io& io, const std::filesystem::path& path);

/// The directory that holds the step directories of the run `path`; it does not exist if the run has not
/// saved yet. Or `path` itself, if that holds step directories. Throws Error(kUsage) as above.
std::filesystem::path find_checkpoints(Io& io, const std::filesystem::path& path);

/// Finds a step directory. If `path` is one, that one; else `path` is as for `find_checkpoints`, and `which`
/// says which checkpoint: "latest", "best", a step ("60", "step_00000060"), or the path of a step directory
/// of this run. "latest" is the newest that is whole or of another format, or the newest if there is none.
/// Superseded checkpoints (Takeovers) are passed over; a step that names one finds it, and who opens it
/// refuses it. "best" is the one that the newest whole checkpoint calls best; if it names none, "latest".
/// Throws Error(kUsage) for any other `which` and if there is no such checkpoint, Error(kStorage) if the best
/// one is gone.
std::filesystem::path find_checkpoint(Io& io, const std::filesystem::path& path, const std::string& which);

/// Names what is in `directory` that new results of a run or an evaluation must not come beside: "plots/,
/// prepare.json, test.h5 and 2 more"; "" if there is nothing. In the way is what a data set, a run or a model
/// would write (config.toml, tokenizer.model, prompt_template.txt, LOCK, prepare.json, manifest.json, *.h5,
/// *.jsonl, *.safetensors), unless its name begins with one of `own`, and each folder but `logs`, an empty
/// `checkpoints` and hidden ones without .git. Other files may lie there, such as job scripts, logs and
/// notes. Throws Error(kStorage).
std::string entries_in_the_way(Io& io, const std::filesystem::path& directory,
                               std::span<const std::string_view> own = {});

}  // namespace ripstop
