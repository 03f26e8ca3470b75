// Finds the runs and checkpoints that a path on the command line names. find_runs(), find_checkpoints() and
// find_checkpoint() throw Error(kUsage) if the path names nothing or something else. All but
// find_foreign_weights() throw Error(kStorage) if the system refuses to read it. Not collective.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// Whether a run has begun in `directory`: it holds metrics.jsonl, prompt_template.txt, step directories in
/// `checkpoints`, or a LOCK without step directories beside it.
bool is_run(Io& io, const std::filesystem::path& directory);

/// `path` itself if it is a run, else the runs directly inside `path`, ordered by name. Throws Error(kUsage)
/// if `path` has no runs; if `path` does not exist, the error names a similar path, if any.
std::vector<std::filesystem::path> find_runs(Io& io, const std::filesystem::path& path);

/// `path`/checkpoints, which may be absent, if `path` is a run; `path` if it has step directories.
std::filesystem::path find_checkpoints(Io& io, const std::filesystem::path& path);

/// `path` itself if it has a manifest, or exists and has the name of a step. If `path` is a run or holds step
/// directories, the step directory that `which` names:
/// - "latest": the newest checkpoint that is whole and not superseded (Takeovers), or of another format; if
///   there is none, the newest of all.
/// - "best": the best checkpoint according to the newest whole one; without a validation, the latest.
/// - a step ("60", "step_00000060"). A superseded checkpoint may be named, but cannot be opened.
/// - the path of a step directory of this run.
/// Throws Error(kUsage) for another `which`, another step than that of `path`, or a checkpoint that does not
/// exist, Error(kStorage) if the best checkpoint has been removed.
std::filesystem::path find_checkpoint(Io& io, const std::filesystem::path& path, const std::string& which);

struct ForeignWeights {
  std::string what;  ///< a file and its kind: "model.gguf, for llama.cpp"; or empty
  std::string way;   ///< how to get files that ripstop reads
};

/// Weights of another program: in the directory `path`, or the file `path` itself. Throws nothing.
ForeignWeights find_foreign_weights(const std::filesystem::path& path);

/// A text that names the entries of `directory` that keep a run or an evaluation from writing there: "a/, b/,
/// test.h5 and 2 more"; "" without such entries. They are files of data sets, runs and models (config.toml, a
/// tokenizer's files, prompt_template.txt, LOCK, prepare.json, manifest.json, *.h5, *.jsonl, *.safetensors,
/// *.bin), the folder .git, and folders except `logs`, hidden ones, and a `checkpoints` with only LOCK*,
/// takeovers.json and hidden entries. Entries whose names begin with a name in `own` are allowed.
std::string entries_in_the_way(Io& io, const std::filesystem::path& directory,
                               std::span<const std::string_view> own = {});

}  // namespace ripstop
