// `ripstop checkpoint`: functions that several source files share.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "train/commands/command_line.h"

namespace ripstop {

/// The arguments of `list`, `inspect` and `verify`.
struct CheckpointArguments {
  std::string path;              ///< a run's directory, a checkpoint's or, for `inspect`, a model's
  std::string which = "latest";  ///< --checkpoint: which checkpoint of a run
  bool json = false;
};

/// Prints the contents of a checkpoint or of a Hugging Face model. Returns kStorage for a checkpoint that is
/// damaged, superseded or of another format.
ExitCode inspect_checkpoint(Io& io, const CheckpointArguments& given);

/// Add the verbs `import`, which runs in one process, and `export`, which runs on all ranks.
void add_checkpoint_import(Verb& checkpoint);
void add_checkpoint_export(Verb& checkpoint);

/// Warns on standard error of each superseded checkpoint newer than `chosen`, if they can be listed.
void warn_of_superseded(Io& io, const std::filesystem::path& chosen);

/// Returns the directory from find_checkpoint(), after warn_of_superseded(). Throws like find_checkpoint().
std::filesystem::path find_and_warn(Io& io, const CheckpointArguments& given);

}  // namespace ripstop
