// Parts of `ripstop checkpoint` that several source files share.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "train/commands/command_line.h"

namespace ripstop {

/// The command line of a verb on one checkpoint: PATH, --checkpoint and --json.
struct CheckpointArguments {
  std::string path;
  std::string which = "latest";
  bool json = false;
};

/// Prints what a checkpoint, or a model of Hugging Face, holds. Returns kStorage for a checkpoint that is
/// damaged, superseded or of another format.
ExitCode inspect_checkpoint(Io& io, const CheckpointArguments& given);

/// Add a verb to `checkpoint`: `import`, for one process, and `export`, for all ranks.
void add_checkpoint_import(Verb& checkpoint);
void add_checkpoint_export(Verb& checkpoint);

/// Warns on standard error of each superseded checkpoint (Takeovers) that is newer than `chosen`. Does
/// nothing if the checkpoints cannot be listed.
void warn_of_superseded(Io& io, const std::filesystem::path& chosen);

/// Finds the checkpoint that `given` names (find_checkpoint), and calls warn_of_superseded for it.
std::filesystem::path find_and_warn(Io& io, const CheckpointArguments& given);

}  // namespace ripstop
