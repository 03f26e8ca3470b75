// What may lie in a directory into which a run or an evaluation writes. One rule for both. Not collective.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "data/files/io.h"

namespace ripstop {

/// Names what is in `directory` that new results must not come beside: "plots/, prepare.json, test.h5 and 2
/// more"; "" if there is nothing. That is what a data set, a run or a model would write (config.toml,
/// tokenizer.model, prompt_template.txt, LOCK, prepare.json, manifest.json, *.h5, *.jsonl, *.safetensors),
/// and folders other than `logs`, an empty `checkpoints` and hidden ones; but .git is in the way. All other
/// files, such as job scripts, logs and notes, may lie there; so may files whose names begin with one of
/// `own`. Throws Error(kStorage).
std::string entries_in_the_way(Io& io, const std::filesystem::path& directory,
                               std::span<const std::string_view> own = {});

}  // namespace ripstop
