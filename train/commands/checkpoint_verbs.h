// `ripstop checkpoint`: functions that several source files share.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "train/commands/command_line.h"

namespace ripstop {

/// PATH, --checkpoint and --json.
struct CheckpointArguments {
  std::string path;
  std::string which = "latest";
  bool json = false;
};

/// Prints the contents of a checkpoint or of a Hugging Face model. Returns kStorage for a checkpoint that is
/// damaged, superseded or of another format.
ExitCode inspect_checkpoint(Io& io, const CheckpointArguments& given);

/// `import` runs in one process, `export` on all ranks.
void add_checkpoint_import(Verb& checkpoint);
void add_checkpoint_export(Verb& checkpoint);

/// Warns on standard error of each superseded checkpoint that is newer than `chosen`. Does nothing if the
/// checkpoints cannot be listed.
void warn_of_superseded(Io& io, const std::filesystem::path& chosen);

/// Calls find_checkpoint and warn_of_superseded.
std::filesystem::path find_and_warn(Io& io, const CheckpointArguments& given);

}  // namespace ripstop
