// The verbs of ripstop checkpoint, which have sources of their own.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"
#include "train/commands/command_line.h"

namespace ripstop {

/// The command line of the verbs on one checkpoint.
struct CheckpointArguments {
  std::string path;
  std::string which = "latest";
  bool json = false;
};

/// `inspect` of a checkpoint or a model of Hugging Face. kStorage if a checkpoint may not be used.
ExitCode inspect_checkpoint(Io& io, const CheckpointArguments& given);

/// Prints the one document of --json, on a line of its own for each member.
void print_document(const JsonReader::Json& document);

/// Add `import`, and `export`, which runs on all ranks, to the verbs of `checkpoint`.
void add_checkpoint_import(Verb& checkpoint);
void add_checkpoint_export(Verb& checkpoint);

/// Warns on standard error of each checkpoint that is newer than `chosen` and was passed over because it is
/// superseded (Takeovers). Warns of nothing if they cannot be listed.
void warn_of_superseded(Io& io, const std::filesystem::path& chosen);

/// The checkpoint that `given` names (find_checkpoint), after warn_of_superseded.
std::filesystem::path find_and_warn(Io& io, const CheckpointArguments& given);

}  // namespace ripstop
